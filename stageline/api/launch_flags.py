"""The flags of serving engines that decide speed or memory, and the keywords of the Python API that they set.

Read in the engines' own documents: docs.vllm.ai (vllm serve), docs.sglang.io (server arguments), and the TensorRT-LLM
documentation (trtllm-serve). A flag that is in none of the tables is refused by name.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stageline.api.launch_unused import (
    SGLANG_SWITCHES,
    SGLANG_VALUES,
    TRTLLM_SWITCHES,
    TRTLLM_VALUES,
    VLLM_SWITCHES,
    VLLM_VALUES,
)

_SUFFIXED = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMgG]?)")
_SUFFIXES = {"": 1, "k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}


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
    environment: Mapping[str, Value] = field(default_factory=dict)  # variables that set keywords
    values: Mapping[str, Value]
    switches: Mapping[str, Switch]
    synonyms: Mapping[str, str]  # other spellings -> the one in these tables
    model_flags: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()  # switches that change nothing emulated
    takes_value: frozenset[str] = frozenset()  # flags with a value that change nothing emulated
    refused: Mapping[str, str] = field(default_factory=dict)  # flags that would change what is emulated, and why not


def whole(text: str) -> int:
    """A whole number from 1 up."""
    if not re.fullmatch(r"[0-9]{1,12}", text) or not int(text):
        raise ValueError("not a positive whole number")
    return int(text)


def tokens(text: str) -> int:
    """A number of tokens with vLLM's suffixes: k = 1000, K = 1024."""
    match = _SUFFIXED.fullmatch(text)
    if match is None:
        raise ValueError("not a number of tokens")
    number, suffix = match.groups()
    count = float(number) * _SUFFIXES[suffix]
    if count != int(count) or count < 1:
        raise ValueError("not a whole number of tokens")
    return int(count)


def fraction(text: str) -> float:
    """A number above 0, at most 1."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ValueError("not a fraction above 0, at most 1")
    return number


def element(text: str) -> str:
    """A type of the KV cache, as these engines write it."""
    kinds = {
        "auto": "auto", "bfloat16": "bf16", "bf16": "bf16", "half": "fp16", "float16": "fp16", "fp8": "fp8",
        "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "float32": "fp32",
    }  # fmt: skip
    if text not in kinds:
        raise ValueError(f"not emulated; known: {', '.join(kinds)}")
    return kinds[text]


def weights(text: str) -> str:
    """A weight format asked for at launch; formats of the checkpoint itself are read from its config."""
    kinds = {
        "fp8": "fp8", "w8a8_fp8": "fp8", "w8a8_int8": "int8", "mxfp4": "mxfp4", "nvfp4": "nvfp4",
        "modelopt_fp4": "nvfp4", "modelopt": "as-shipped", "modelopt_fp8": "as-shipped", "awq": "as-shipped",
        "awq_marlin": "as-shipped", "gptq": "as-shipped", "gptq_marlin": "as-shipped",
        "compressed-tensors": "as-shipped", "bitsandbytes": "as-shipped",
    }  # fmt: skip
    if text not in kinds:
        raise ValueError(f"not emulated; known: {', '.join(kinds)}")
    return kinds[text]


def dtype(text: str) -> str:
    """The type of unquantised weights: the shipped one, or another of 16 bits, which costs the same."""
    if text not in ("auto", "bfloat16", "float16", "half"):
        raise ValueError("not emulated; known: auto, bfloat16, float16, half")
    return "as-shipped"


def graph_sizes(text: str) -> dict[str, Any]:
    """Captured sizes; one number alone is the largest of the engine's own sizes (vLLM's --cuda-graph-sizes)."""
    sizes = captured(text)
    return {"cuda_graph_sizes": sizes} if len(sizes) > 1 else {"cuda_graph_max": sizes[0]}


def captured(text: str) -> tuple[int, ...]:
    """Captured sizes."""
    return tuple(whole(part) for part in text.split(","))


def compilation(text: str) -> dict[str, Any]:
    """vLLM's --compilation-config: a level, or JSON of which only what concerns CUDA graphs has a meaning here."""
    fields = json_fields(text) if text.strip().startswith("{") else {"mode": text}
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "cudagraph_capture_sizes":
            found["cuda_graph_sizes"] = captured(",".join(map(str, value if isinstance(value, list) else [value])))
        elif name == "max_cudagraph_capture_size":
            found["cuda_graph_max"] = whole(str(value))
        elif name == "cudagraph_mode" and value in ("NONE", "none", 0):
            found["enforce_eager"] = True
        elif (name, value) not in _COMPILATION_DEFAULTS:
            raise ValueError(f"{name}: not emulated")
    return found


_COMPILATION_DEFAULTS = [("cudagraph_mode", "FULL_AND_PIECEWISE"), ("mode", 3), ("mode", "3"), ("level", 3)]


def json_fields(text: str) -> dict[str, Any]:
    """The fields of a JSON object."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def fcfs(text: str) -> dict[str, Any]:
    """A scheduling policy: only the default, which sets nothing. Others are settings of runs."""
    if text != "fcfs":
        raise ValueError("a setting of runs; give --queueing to stageline run")
    return {}


def model_length(text: str) -> int:
    """vLLM's --max-model-len."""
    if text in ("auto", "-1"):
        raise ValueError("the longest that fits is not looked for")
    return tokens(text)


def experts_balanced(text: str) -> dict[str, Any]:
    """vLLM's --eplb-config: JSON, of which the copies of experts count."""
    try:
        fields = json.loads(text)
        copies = int(fields.get("num_redundant_experts", 0))
    except (ValueError, AttributeError, TypeError):
        raise ValueError("not a JSON object with a number of num_redundant_experts") from None
    return {"redundant_experts": copies} if copies else {}


def count(text: str) -> int:
    """A whole number from 0 up."""
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ValueError("not a whole number")
    return int(text)


def free_share(text: str) -> dict[str, Any]:
    """A share of the memory that weights, runtime and activations leave."""
    return {"activations": "free", "memory_share": fraction(text)}


def deep_ep(text: str) -> dict[str, Any]:
    """SGLang's --moe-a2a-backend: with one, experts are spread over all ranks."""
    return {} if text == "none" else {"experts_on_all_ranks": True}


_OTHER_CONFIG = "another config.json: give the path of one that has the change"
_RUNS = "a setting of runs; give --speculate and --acceptance to stageline run"

VLLM = Dialect(
    name="vllm-v1",
    example="'vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2'",
    commands=(
        ("vllm", "serve"),
        ("python", "-m", "vllm.entrypoints.openai.api_server"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server"),
        ("python", "-m", "vllm.entrypoints.api_server"),
        ("python3", "-m", "vllm.entrypoints.api_server"),
    ),
    environment={"VLLM_PP_LAYER_PARTITION": Value("layer_partition", str)},
    values={
        "--tensor-parallel-size": Value("tensor_parallel", whole),
        "--pipeline-parallel-size": Value("stages", whole),
        "--data-parallel-size": Value("replicas", whole),
        "--max-model-len": Value("max_model_len", model_length, "write it like 8192, 8k or 8K"),
        "--gpu-memory-utilization": Value("memory_share", fraction),
        "--block-size": Value("block_tokens", whole),
        "--kv-cache-dtype": Value("kv_cache_dtype", element),
        "--quantization": Value("weights", weights),
        "--dtype": Value("weights", dtype),
        "--max-num-seqs": Value("max_num_seqs", whole),
        "--max-num-batched-tokens": Value("max_num_batched_tokens", tokens),
        "--num-gpu-blocks-override": Value("kv_blocks", whole),
        "--num-redundant-experts": Value("redundant_experts", count),
        "--eplb-config": Value("", experts_balanced),
        "--scheduling-policy": Value("", fcfs),
        "--cuda-graph-sizes": Value("", graph_sizes, several=True),
        "--cudagraph-capture-sizes": Value("cuda_graph_sizes", captured, several=True),
        "--max-cudagraph-capture-size": Value("cuda_graph_max", whole),
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
        "--enable-dbo": Switch({"overlap": True}),
        "--disable-hybrid-kv-cache-manager": Switch({"whole_kv": True}),
    },
    synonyms={
        "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
        "-q": "--quantization", "-ep": "--enable-expert-parallel",
        "-O": "--compilation-config", "-cc": "--compilation-config",
    },
    model_flags=frozenset({"--model"}),
    unused=VLLM_SWITCHES,
    takes_value=VLLM_VALUES,
    refused={
        "--no-enable-chunked-prefill": "prefill without chunks",
        "--cpu-offload-gb": "weights in host memory",
        "--enable-lora": "adapters",
        "--disable-custom-all-reduce": "NCCL in place of the one-shot all-reduce",
        "--speculative-config": _RUNS,
        "--decode-context-parallel-size": "decode context parallelism",
        "--prefill-context-parallel-size": "prefill context parallelism",
        "--hf-overrides": _OTHER_CONFIG,
        "--rope-scaling": _OTHER_CONFIG,
        "--config": "settings in a file of its own",
        "--additional-config": "settings of a platform",
        "--kv-cache-memory-bytes": "KV by its bytes; give --num-gpu-blocks-override",
        "--kv-transfer-config": "KV that other servers or stores hold",
        "--kv-offloading-size": "KV in host memory",
        "--lora-modules": "adapters",
        "--disable-sliding-window": "a shorter context instead of windows; give --max-model-len",
        "--num-scheduler-steps": "several steps at once, of the V0 engine",
        "--max-num-partial-prefills": "several prefills at once with limits of their own",
        "--long-prefill-token-threshold": "several prefills at once with limits of their own",
    },
)  # fmt: skip

SGLANG = Dialect(
    name="sglang",
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
        "--quantization": Value("weights", weights),
        "--dtype": Value("weights", dtype),
        "--max-running-requests": Value("max_num_seqs", whole),
        "--chunked-prefill-size": Value("max_num_batched_tokens", whole),
        "--schedule-policy": Value("", fcfs),
        "--pp-max-micro-batch-size": Value("microbatch", whole),
        "--cuda-graph-max-bs": Value("cuda_graph_max", whole),
        "--cuda-graph-bs": Value("cuda_graph_sizes", captured, several=True),
        "--moe-a2a-backend": Value("", deep_ep),
        "--ep-num-redundant-experts": Value("redundant_experts", count),
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
    },
    model_flags=frozenset({"--model-path"}),
    unused=SGLANG_SWITCHES,
    takes_value=SGLANG_VALUES,
    refused={
        "--disable-cuda-graph-padding": "a graph for every size; give them with --cuda-graph-bs",
        "--disable-overlap-schedule": "its host time, which nothing published says",
        "--speculative-num-draft-tokens": _RUNS,
        "--speculative-algorithm": _RUNS,
        "--json-model-override-args": _OTHER_CONFIG,
        "--lora-paths": "adapters",
        "--enable-lora": "adapters",
        "--config": "settings in a file of its own",
        "--schedule-conservativeness": "admission by a share of the outputs to come",
        "--max-total-tokens": "KV by its tokens; give --num-gpu-blocks-override",
        "--max-prefill-tokens": "a limit on whole prompts beside the chunks' size",
        "--enable-hierarchical-cache": "KV in host memory",
        "--enable-mixed-chunk": "a choice between two ways of batching; here chunks and decodes share batches",
        "--cpu-offload-gb": "weights in host memory",
        "--enable-two-batch-overlap": "two half batches; give --overlap",
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
        "--kv-cache-free-gpu-memory-fraction": Value("", free_share),
    },
    switches={},
    synonyms={"--free-gpu-memory-fraction": "--kv-cache-free-gpu-memory-fraction"},
    unused=TRTLLM_SWITCHES,
    takes_value=TRTLLM_VALUES,
    refused={
        "--extra-llm-api-options": "settings in a file of its own",
        "--config": "settings in a file of its own",
        "--max-beam-width": "beam search",
    },
)

ENGINES = (VLLM, SGLANG, TRTLLM)
