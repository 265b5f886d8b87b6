"""The flags of serving engines that decide speed or memory, and the keywords of the Python API that they set.

Read in the engines' own documents: docs.vllm.ai (vllm serve), docs.sglang.io (server arguments), and the TensorRT-LLM
documentation (trtllm-serve). A flag that is in none of the tables is refused by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stageline.api.launch_refused import SGLANG_REFUSED, TRTLLM_REFUSED, VLLM_REFUSED
from stageline.api.launch_unused import (
    SGLANG_SWITCHES,
    SGLANG_VALUES,
    TRTLLM_SWITCHES,
    TRTLLM_VALUES,
    VLLM_JSON,
    VLLM_SWITCHES,
    VLLM_VALUES,
)
from stageline.api.launch_values import (
    captured,
    chunk,
    compilation,
    count,
    deep_ep,
    dtype,
    element,
    experts_balanced,
    fcfs,
    fraction,
    free_share,
    graph_sizes,
    images,
    memory,
    model_length,
    one_beam,
    optimization,
    performance_mode,
    quantization,
    rope_scaling,
    sglang_together,
    switched_on,
    tokens,
    tower_mode,
    v1_engine,
    vllm_together,
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
    split: str  # how it divides layers among stages, as `--layer-partition`
    example: str
    commands: tuple[tuple[str, ...], ...]
    environment: Mapping[str, Value] = field(default_factory=dict)  # variables that set keywords
    values: Mapping[str, Value]
    switches: Mapping[str, Switch]
    synonyms: Mapping[str, str]  # other spellings -> the one in these tables
    model_flags: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()  # switches that change nothing emulated
    json: frozenset[str] = frozenset()  # flags with a JSON value, whose fields may be given one by one behind a dot
    takes_value: frozenset[str] = frozenset()  # flags with a value that change nothing emulated
    refused: Mapping[str, str] = field(default_factory=dict)  # flags that would change what is emulated, and why not
    together: Callable[[dict[str, Any]], dict[str, Any]] = dict  # keywords of flags that mean something only together


VLLM = Dialect(
    name="vllm-v1",
    split="vllm",
    example="'vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2'",
    commands=(
        ("vllm", "serve"),
        ("python", "-m", "vllm.entrypoints.openai.api_server"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server"),
        ("python", "-m", "vllm.entrypoints.api_server"),
        ("python3", "-m", "vllm.entrypoints.api_server"),
    ),
    environment={
        "VLLM_PP_LAYER_PARTITION": Value("layer_partition", str),
        "VLLM_USE_V1": Value("", v1_engine),
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": Value("any_length", switched_on),
    },
    together=vllm_together,
    values={
        "--tensor-parallel-size": Value("tensor_parallel", whole),
        "--pipeline-parallel-size": Value("stages", whole),
        "--data-parallel-size": Value("replicas", whole),
        "--max-model-len": Value("max_model_len", model_length, "write it like 8192, 8k or 8K"),
        "--gpu-memory-utilization": Value("memory_share", fraction),
        "--block-size": Value("block_tokens", whole),
        "--kv-cache-dtype": Value("kv_cache_dtype", element),
        "--quantization": Value("quantization", quantization),
        "--dtype": Value("weights", dtype),
        "--max-num-seqs": Value("max_num_seqs", whole),
        "--max-num-batched-tokens": Value("max_num_batched_tokens", tokens),
        "--num-gpu-blocks-override": Value("kv_blocks", whole),
        "--kv-cache-memory-bytes": Value("kv_cache_bytes", memory, "write it like 25G (2^30), 25g (10^9) or in bytes"),
        "--num-redundant-experts": Value("redundant_experts", count),
        "--eplb-config": Value("", experts_balanced),
        "--scheduling-policy": Value("", fcfs),
        "--cuda-graph-sizes": Value("", graph_sizes, several=True),
        "--cudagraph-capture-sizes": Value("cuda_graph_sizes", captured, several=True),
        "--max-cudagraph-capture-size": Value("cuda_graph_max", whole),
        "--speculative-config": Value("speculative_config", str),
        "--compilation-config": Value("", compilation, "leave out what does not concern CUDA graphs"),
        "--optimization-level": Value("", optimization, "give 0, 2 or 3"),
        "--hf-overrides": Value("hf_overrides", str),
        "--mm-encoder-tp-mode": Value("tower_mode", tower_mode, "give weights or data"),
        "--mamba-ssm-cache-dtype": Value("state_dtype", element),
        "--performance-mode": Value("", performance_mode, "give the limits and graph sizes that it stands for"),
        "--limit-mm-per-prompt": Value("", images, "write it like image=2,video=0, or as JSON"),
        "--rope-scaling": Value("hf_overrides", rope_scaling, "write it as the rope_scaling of a config.json"),
    },
    switches={
        "--enable-expert-parallel": Switch({"all_experts": True}),
        "--enforce-eager": Switch({"enforce_eager": True}),
        "--async-scheduling": Switch({"async_scheduling": True}),
        "--no-async-scheduling": Switch({"async_scheduling": False}),
        "--enable-prefix-caching": Switch({"prefix_cache": True}),
        "--no-enable-prefix-caching": Switch({"prefix_cache": False}),
        "--enable-chunked-prefill": Switch({}),
        "--language-model-only": Switch({"language_model_only": True}),
        "--enable-dbo": Switch({"overlap": True}),
        "--disable-hybrid-kv-cache-manager": Switch({"whole_kv": True}),
    },
    synonyms={
        "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
        "-dcp": "--decode-context-parallel-size", "-pcp": "--prefill-context-parallel-size",
        "-q": "--quantization", "-ep": "--enable-expert-parallel",
        "-sc": "--speculative-config", "-O": "--optimization-level", "-cc": "--compilation-config",
    },
    model_flags=frozenset({"--model"}),
    json=frozenset(
        {
            "--speculative-config", "--compilation-config", "--eplb-config", "--hf-overrides", "--rope-scaling",
            "--limit-mm-per-prompt",
            "--kv-transfer-config", "--additional-config", *VLLM_JSON,
        }
    ),
    unused=VLLM_SWITCHES,
    takes_value=VLLM_VALUES,
    refused=VLLM_REFUSED,
)  # fmt: skip


SGLANG = Dialect(
    name="sglang",
    split="sglang",
    together=sglang_together,
    example="'python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 2'",
    commands=(
        ("python", "-m", "sglang.launch_server"),
        ("python3", "-m", "sglang.launch_server"),
        ("sglang", "serve"),
    ),
    environment={"SGLANG_PP_LAYER_PARTITION": Value("layer_partition", str)},
    values={
        "--tp-size": Value("tensor_parallel", whole),
        "--pp-size": Value("stages", whole),
        "--dp-size": Value("replicas", whole),
        "--ep-size": Value("expert_parallel", whole),
        "--context-length": Value("max_model_len", whole),
        "--mem-fraction-static": Value("memory_share", fraction),
        "--page-size": Value("block_tokens", whole),
        "--kv-cache-dtype": Value("kv_cache_dtype", element),
        "--quantization": Value("quantization", quantization),
        "--dtype": Value("weights", dtype),
        "--max-running-requests": Value("max_num_seqs", whole),
        "--chunked-prefill-size": Value("max_num_batched_tokens", chunk),
        "--schedule-policy": Value("", fcfs),
        "--pp-max-micro-batch-size": Value("microbatch", whole),
        "--speculative-algorithm": Value("speculative_algorithm", str),
        "--speculative-num-steps": Value("speculative_steps", whole),
        "--speculative-eagle-topk": Value("speculative_topk", whole),
        "--speculative-num-draft-tokens": Value("speculative_tokens", whole),
        "--speculative-draft-model-path": Value("speculative_model", str),
        "--cuda-graph-max-bs": Value("cuda_graph_max", whole),
        "--cuda-graph-bs": Value("cuda_graph_sizes", captured, several=True),
        "--moe-a2a-backend": Value("", deep_ep),
        "--ep-num-redundant-experts": Value("redundant_experts", count),
        "--pp-async-batch-depth": Value("pipeline_depth", count),
        "--mamba-ssm-dtype": Value("state_dtype", element),
        "--json-model-override-args": Value("hf_overrides", str),
    },
    switches={
        "--disable-radix-cache": Switch({"prefix_cache": False}),
        "--disable-cuda-graph": Switch({"enforce_eager": True}),
        "--enable-dp-attention": Switch({"dp_attention": True}),
        "--enable-ep-moe": Switch({"experts_on_all_ranks": True}),
        "--enable-deepep-moe": Switch({"experts_on_all_ranks": True}),
    },
    synonyms={
        "--tp": "--tp-size", "--tensor-parallel-size": "--tp-size", "--pp": "--pp-size",
        "--pipeline-parallel-size": "--pp-size", "--dp": "--dp-size", "--data-parallel-size": "--dp-size",
        "--ep": "--ep-size", "--expert-parallel-size": "--ep-size", "--model": "--model-path",
        "--speculative-algo": "--speculative-algorithm", "--speculative-draft-model": "--speculative-draft-model-path",
    },
    model_flags=frozenset({"--model-path"}),
    unused=SGLANG_SWITCHES,
    takes_value=SGLANG_VALUES,
    refused=SGLANG_REFUSED,
)  # fmt: skip

TRTLLM = Dialect(
    name="trtllm",
    split="trtllm",
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
        "--kv-cache-free-gpu-memory-fraction": Value("", free_share),
        "--max-beam-width": Value("", one_beam, "leave it out"),
    },
    switches={"--enable-chunked-prefill": Switch({})},
    synonyms={"--free-gpu-memory-fraction": "--kv-cache-free-gpu-memory-fraction"},
    unused=TRTLLM_SWITCHES,
    takes_value=TRTLLM_VALUES,
    refused=TRTLLM_REFUSED,
)

ENGINES = (VLLM, SGLANG, TRTLLM)
