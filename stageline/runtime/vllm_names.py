"""The metrics of vLLM's V1 engine that dashboards and autoscalers of real clusters read, under vLLM's names.

Times are emulated seconds, right at any dilation. `engine` is the replica, numbered through all pools.
"""

from stageline.runtime.metrics import Exporter, MetricSpec

_LABELS = ("model_name", "engine", "pool")
_BY: tuple[Exporter, ...] = ("router",)


def _bounds(*vllm: float, first: int, last: int) -> tuple[float, ...]:
    """vLLM's bounds, with 1-2-5 steps from 10^first to 10^last between them."""
    steps = (round(10.0**e * m, 9) for e in range(first, last + 1) for m in (1, 2, 5))
    return tuple(sorted({*vllm, *steps}))


_TTFT_S = _bounds(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
                  40.0, 80.0, 160.0, 640.0, 2560.0, first=-3, last=1)  # fmt: skip
_TOKEN_S = _bounds(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
                   80.0, first=-3, last=1)  # fmt: skip
_REQUEST_S = _bounds(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
                     480.0, 960.0, 1920.0, 7680.0, first=-3, last=1)  # fmt: skip
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_REQUEST_TOKENS = tuple(m * 10**e for e in range(7) for m in (1, 2, 5))
_N = (1, 2, 5, 10, 20)


def _gauge(name: str, text: str, *more: str) -> MetricSpec:
    return MetricSpec(name=f"vllm:{name}", kind="gauge", help=text, labels=(*_LABELS, *more), by=_BY)


def _counter(name: str, text: str, *more: str) -> MetricSpec:
    return MetricSpec(name=f"vllm:{name}_total", kind="counter", help=text, labels=(*_LABELS, *more), by=_BY)


def _histogram(name: str, text: str, bounds: tuple[float, ...]) -> MetricSpec:
    return MetricSpec(name=f"vllm:{name}", kind="histogram", help=text, labels=_LABELS, by=_BY, bounds=bounds)


RUNNING = _gauge("num_requests_running", "Requests admitted.")
WAITING = _gauge("num_requests_waiting", "Requests that wait for admission.")
KV_USAGE = _gauge(
    "kv_cache_usage_perc",
    "KV in use on the fullest stage, as a share of its budget (1 is full), without what the prefix cache could evict.",
)
CACHE_CONFIG = _gauge(
    "cache_config_info", "1; block size, and the fewest blocks of a stage.", "block_size", "num_gpu_blocks"
)
LORA = _gauge("lora_requests_info", "0; adapters are not emulated.", "max_lora", "waiting_lora_adapters",
              "running_lora_adapters")  # fmt: skip
PROMPT_TOKENS = _counter("prompt_tokens", "Prompt tokens prefilled, counted with the first token.")
GENERATION_TOKENS = _counter("generation_tokens", "Tokens sampled.")
SUCCESS = _counter("request_success", "Requests that ended, by reason.", "finished_reason")
PREEMPTIONS = _counter(
    "num_preemptions", "Preemptions, counted when the request ends; where it decodes, if it was handed over."
)
CACHE_QUERIES = _counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
CACHE_HITS = _counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
DRAFTS = _counter("spec_decode_num_drafts", "Decode steps of a sequence that came back with drafts.")
DRAFT_TOKENS = _counter("spec_decode_num_draft_tokens", "Draft tokens that they verified.")
ACCEPTED_TOKENS = _counter("spec_decode_num_accepted_tokens", "Draft tokens that became output.")
STEP_TOKENS = _histogram("iteration_tokens_total", "New tokens of a microbatch.", _STEP_TOKENS)
REQUEST_PROMPT = _histogram("request_prompt_tokens", "Prompt tokens of a finished request.", _REQUEST_TOKENS)
REQUEST_OUTPUT = _histogram("request_generation_tokens", "Output tokens of a finished request.", _REQUEST_TOKENS)
MAX_OUTPUT = _histogram("request_max_num_generation_tokens", "Most tokens asked for by any choice.", _REQUEST_TOKENS)
PARAM_MAX = _histogram("request_params_max_tokens", "max_tokens of a finished request.", _REQUEST_TOKENS)
PARAM_N = _histogram("request_params_n", "n of a finished request; each choice is a request here.", _N)
TTFT = _histogram("time_to_first_token_seconds", "Arrival to first token.", _TTFT_S)
ITL = _histogram("inter_token_latency_seconds", "Between two tokens of a request.", _TOKEN_S)
TPOT = _histogram("request_time_per_output_token_seconds", "Mean time per token after the first.", _TOKEN_S)
E2E = _histogram("e2e_request_latency_seconds", "Arrival to last token.", _REQUEST_S)
QUEUE = _histogram("request_queue_time_seconds", "Arrival to first admission.", _REQUEST_S)
INFERENCE = _histogram("request_inference_time_seconds", "First admission to last token.", _REQUEST_S)
PREFILL = _histogram("request_prefill_time_seconds", "First admission to first token.", _REQUEST_S)
DECODE = _histogram("request_decode_time_seconds", "First to last token.", _REQUEST_S)

DROP_IN = tuple(value for value in list(globals().values()) if isinstance(value, MetricSpec))
