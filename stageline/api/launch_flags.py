"""The flags of serving engines that decide speed or memory, and the keywords of the Python API that they set.

Read in the engines' own documents: docs.vllm.ai (vllm serve), docs.sglang.io (server arguments), and the TensorRT-LLM
documentation (trtllm-serve). A flag that is in none of the tables is refused by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stageline.api.launch_values import (
    captured,
    compilation,
    dtype,
    element,
    fcfs,
    fraction,
    graph_sizes,
    sglang_speculation,
    tokens,
    weights,
    whole,
)


@dataclass(frozen=True, slots=True)
class Value:
    """A flag with a value. `read` gives the value of the keyword, or a mapping of several; ValueError says why not."""

    keyword: str
    read: Callable[[str], Any]
    way_out: str = "see the engine's documentation"
    several: bool = False  # the words behind the flag that are numbers belong to it; `read` gets them with commas


@dataclass(frozen=True, slots=True)
class Switch:
    """A flag without a value, and the keywords that it sets."""

    sets: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one serving engine is launched."""

    name: str  # its profile in the catalogue
    example: str
    commands: tuple[tuple[str, ...], ...]
    values: Mapping[str, Value]
    switches: Mapping[str, Switch]
    synonyms: Mapping[str, str]  # other spellings -> the one in these tables
    model_flags: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()  # switches that change nothing emulated
    takes_value: frozenset[str] = frozenset()  # flags with a value that change nothing emulated
    refused: Mapping[str, str] = field(default_factory=dict)  # flags that would change what is emulated, and why not
    together: Callable[[dict[str, Any]], dict[str, Any]] = dict  # keywords of flags that mean something only together


_SERVER_VALUES = frozenset(
    {
        "--host", "--port", "--api-key", "--served-model-name", "--tokenizer", "--tokenizer-path", "--tokenizer-mode",
        "--chat-template", "--tool-call-parser", "--reasoning-parser", "--download-dir", "--load-format", "--revision",
        "--seed", "--uvicorn-log-level", "--log-level", "--config-format", "--hf-overrides", "--random-seed",
        "--allowed-origins", "--ssl-keyfile", "--ssl-certfile", "--root-path", "--model-loader-extra-config",
        "--data-parallel-address", "--data-parallel-rpc-port", "--data-parallel-size-local", "--node-rank", "--nnodes",
        "--data-parallel-start-rank", "--distributed-executor-backend", "--dist-init-addr", "--master-addr",
        "--limit-mm-per-prompt", "--generation-config", "--override-generation-config", "--watchdog-timeout",
        "--backend", "--log-level-http", "--dist-timeout", "--mm-encoder-tp-mode", "--api-server-count",
    }
)  # fmt: skip
_SERVER_SWITCHES = frozenset(
    {
        "--trust-remote-code", "--enable-auto-tool-choice", "--disable-log-requests", "--disable-log-stats",
        "--enable-metrics", "--headless", "--disable-uvicorn-access-log", "--enable-request-id-headers",
        "--enable-log-requests", "--skip-server-warmup", "--enable-server-load-tracking", "--no-enable-log-requests",
    }
)  # fmt: skip

VLLM = Dialect(
    name="vllm-v1",
    example="'vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2'",
    commands=(
        ("vllm", "serve"),
        ("python", "-m", "vllm.entrypoints.openai.api_server"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server"),
    ),
    values={
        "--tensor-parallel-size": Value("tensor_parallel", whole),
        "--pipeline-parallel-size": Value("stages", whole),
        "--data-parallel-size": Value("replicas", whole),
        "--max-model-len": Value("max_model_len", tokens, "write it like 8192, 8k or 8K"),
        "--gpu-memory-utilization": Value("memory_share", fraction),
        "--block-size": Value("block_tokens", whole),
        "--kv-cache-dtype": Value("kv_cache_dtype", element),
        "--quantization": Value("weights", weights),
        "--dtype": Value("weights", dtype),
        "--max-num-seqs": Value("max_num_seqs", whole),
        "--max-num-batched-tokens": Value("max_num_batched_tokens", tokens),
        "--num-gpu-blocks-override": Value("kv_blocks", whole),
        "--scheduling-policy": Value("", fcfs),
        "--cuda-graph-sizes": Value("", graph_sizes, several=True),
        "--cudagraph-capture-sizes": Value("cuda_graph_sizes", captured, several=True),
        "--max-cudagraph-capture-size": Value("cuda_graph_max", whole),
        "--speculative-config": Value("speculative_config", str),
        "--compilation-config": Value("", compilation, "leave out what does not concern CUDA graphs"),
    },
    switches={
        "--enable-expert-parallel": Switch({"all_experts": True}),
        "--enforce-eager": Switch({"enforce_eager": True}),
        "--async-scheduling": Switch({"async_scheduling": True}),
        "--no-async-scheduling": Switch({"async_scheduling": False}),
        "--enable-prefix-caching": Switch({"prefix_cache": True}),
        "--no-enable-prefix-caching": Switch({"prefix_cache": False}),
        "--enable-chunked-prefill": Switch({}),
    },
    synonyms={
        "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
        "-q": "--quantization", "-ep": "--enable-expert-parallel",
        "-sc": "--speculative-config", "-O": "--compilation-config", "-cc": "--compilation-config",
    },
    model_flags=frozenset({"--model"}),
    unused=_SERVER_SWITCHES,
    takes_value=_SERVER_VALUES,
    refused={
        "--no-enable-chunked-prefill": "prefill without chunks",
        "--cpu-offload-gb": "weights in host memory",
        "--enable-lora": "adapters",
        "--disable-custom-all-reduce": "NCCL in place of the one-shot all-reduce",
        "--decode-context-parallel-size": "decode context parallelism",
    },
)  # fmt: skip


SGLANG = Dialect(
    name="sglang",
    together=sglang_speculation,
    example="'python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 2'",
    commands=(
        ("python", "-m", "sglang.launch_server"),
        ("python3", "-m", "sglang.launch_server"),
        ("sglang", "serve"),
    ),
    values={
        "--tp-size": Value("tensor_parallel", whole),
        "--pp-size": Value("stages", whole),
        "--dp-size": Value("replicas", whole),
        "--ep-size": Value("expert_parallel", whole),
        "--context-length": Value("max_model_len", whole),
        "--mem-fraction-static": Value("memory_share", fraction),
        "--page-size": Value("block_tokens", whole),
        "--kv-cache-dtype": Value("kv_cache_dtype", element),
        "--quantization": Value("weights", weights),
        "--dtype": Value("weights", dtype),
        "--max-running-requests": Value("max_num_seqs", whole),
        "--chunked-prefill-size": Value("max_num_batched_tokens", whole),
        "--schedule-policy": Value("", fcfs),
        "--pp-max-micro-batch-size": Value("microbatch", whole),
        "--speculative-algorithm": Value("speculative_algorithm", str),
        "--speculative-num-steps": Value("speculative_steps", whole),
        "--speculative-eagle-topk": Value("speculative_topk", whole),
        "--speculative-num-draft-tokens": Value("speculative_tokens", whole),
        "--speculative-draft-model-path": Value("speculative_model", str),
        "--cuda-graph-max-bs": Value("cuda_graph_max", whole),
        "--cuda-graph-bs": Value("cuda_graph_sizes", captured, several=True),
    },
    switches={
        "--disable-radix-cache": Switch({"prefix_cache": False}),
        "--disable-cuda-graph": Switch({"enforce_eager": True}),
    },
    synonyms={
        "--tp": "--tp-size", "--tensor-parallel-size": "--tp-size", "--pp": "--pp-size",
        "--pipeline-parallel-size": "--pp-size", "--dp": "--dp-size", "--data-parallel-size": "--dp-size",
        "--ep": "--ep-size", "--expert-parallel-size": "--ep-size", "--model": "--model-path",
        "--speculative-algo": "--speculative-algorithm", "--speculative-draft-model": "--speculative-draft-model-path",
    },
    model_flags=frozenset({"--model-path"}),
    unused=_SERVER_SWITCHES,
    takes_value=_SERVER_VALUES,
    refused={
        "--enable-dp-attention": "data-parallel attention inside one server",
        "--disable-cuda-graph-padding": "a graph for every size; give them with --cuda-graph-bs",
        "--disable-overlap-schedule": "its host time, which nothing published says",
        "--enable-torch-compile": "compiled kernels",
        "--disaggregation-mode": "prefill and decode on separate servers",
    },
)  # fmt: skip

TRTLLM = Dialect(
    name="trtllm",
    example="'trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2'",
    commands=(("trtllm-serve", "serve"), ("trtllm-serve",)),
    values={
        "--tp-size": Value("tensor_parallel", whole),
        "--pp-size": Value("stages", whole),
        "--ep-size": Value("expert_parallel", whole),
        "--max-seq-len": Value("max_model_len", whole),
        "--kv-cache-dtype": Value("kv_cache_dtype", element),
        "--max-batch-size": Value("max_num_seqs", whole),
        "--max-num-tokens": Value("max_num_batched_tokens", whole),
    },
    switches={},
    synonyms={},
    unused=_SERVER_SWITCHES,
    takes_value=_SERVER_VALUES,
    refused={
        "--kv-cache-free-gpu-memory-fraction": "a share of what is free after the weights; give --memory-share instead",
        "--free-gpu-memory-fraction": "a share of what is free after the weights; give --memory-share instead",
        "--extra-llm-api-options": "settings in a file of its own",
        "--config": "settings in a file of its own",
        "--max-beam-width": "beam search",
    },
)

ENGINES = (VLLM, SGLANG, TRTLLM)
