"""The answer of a search as launch lines to paste: `vllm serve` and SGLang.

What is written is read again (`launch_line`), and only printed if the plan of it is the plan that was run.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stageline.api.keywords import PlanKeywords
from stageline.api.quantization import name_in_flight
from stageline.plan.layer_partition import SPLITS
from stageline.plan.schema import Plan
from stageline.plan.shapes import Shape

VLLM, SGLANG = "vllm-v1", "sglang"
_KV = {"bf16": "bfloat16", "fp8": "fp8", "auto": "auto"}
_WRITTEN_BELOW = ("weights", "quantization", "kv_cache_dtype", "prefix_cache", "layer_partition")
_VLLM = {  # keywords of a plan, and the flags that they become
    "max_model_len": "--max-model-len", "memory_share": "--gpu-memory-utilization", "block_tokens": "--block-size",
    "max_num_seqs": "--max-num-seqs", "max_num_batched_tokens": "--max-num-batched-tokens",
    "hf_overrides": "--hf-overrides",
    "tower_mode": "--mm-encoder-tp-mode",
    "kv_blocks": "--num-gpu-blocks-override", "kv_cache_bytes": "--kv-cache-memory-bytes",
}  # fmt: skip
_SGLANG = {
    "max_model_len": "--context-length", "memory_share": "--mem-fraction-static", "block_tokens": "--page-size",
    "max_num_seqs": "--max-running-requests", "max_num_batched_tokens": "--chunked-prefill-size",
    "microbatch": "--pp-max-micro-batch-size", "hf_overrides": "--json-model-override-args",
}  # fmt: skip


class LaunchTexts(msgspec.Struct, frozen=True, kw_only=True):
    """Empty texts: the engine can't be launched like that, `not_said` has why. All are for one model."""

    plan: str = ""  # `stageline plan`, which writes plan.json; empty for two pools
    run: str = ""  # `stageline run` of plan.json or fleet.toml, with the workload and every setting of the trial
    fleet: str = ""  # fleet.toml: the same as a fleet file
    vllm: str = ""
    sglang: str = ""
    helm: str = ""  # a values file, YAML
    not_said: tuple[str, ...] = ()  # settings of the run that no line can say, as flags of `stageline run`


def launch_words(engine: str, model: str, shape: Shape, keywords: PlanKeywords, plan: Plan) -> list[str] | str:
    """The words of a launch line; a text where the engine has no flag for something that was asked for."""
    asked = _asked(keywords, plan)
    table = _VLLM if engine == VLLM else _SGLANG
    words = _partition(engine, plan)
    words += ["vllm", "serve", model] if engine == VLLM else ["python", "-m", "sglang.launch_server"]
    words += [] if engine == VLLM else ["--model-path", model]
    sizes = _sizes(engine, shape)
    if isinstance(sizes, str):
        return sizes
    words += sizes
    for name, value in asked.items():
        if name in table:
            words += [table[name], str(value)]
        elif name not in _WRITTEN_BELOW and not (name == "language_model_only" and engine == VLLM):
            return f"{engine} has no flag for {name}={value}"
    weights, kv = asked.get("weights", "as-shipped"), asked.get("kv_cache_dtype", "auto")
    if weights != "as-shipped":
        made = name_in_flight(engine, weights)
        if made is None:
            return f"{engine} makes no {weights} weights at launch"
        words += ["--quantization", made]
    elif "quantization" in asked:
        words += ["--quantization", asked["quantization"]]
    if kv != "auto":
        if kv not in _KV:
            return f"{engine} has no {kv} KV cache"
        words += ["--kv-cache-dtype", _KV[kv]]
    if "language_model_only" in asked and engine == VLLM:
        words.append("--language-model-only")
    cache = asked.get("prefix_cache")
    if engine == VLLM and cache is not None:
        words.append("--enable-prefix-caching" if cache else "--no-enable-prefix-caching")
    elif cache is False:
        words.append("--disable-radix-cache")
    return words


def _asked(keywords: PlanKeywords, plan: Plan) -> dict[str, Any]:
    """What was asked for, and the limits in force, so that no default of another release replaces them."""
    unsaid = (None, "", (), 0, 0.0, False, "as-shipped", "auto", "0ns")
    asked: dict[str, Any] = {n: v for n, v in keywords.items() if v not in unsaid and n != "serving_engine"}
    for name, default in _DEFAULTS.items():
        if asked.get(name) == default:
            del asked[name]
    for name in _NOT_THE_ENGINES:
        asked.pop(name, None)
    if keywords.get("prefix_cache") is not None:
        asked["prefix_cache"] = keywords["prefix_cache"]
    ranks = plan.serving.ranks if plan.serving else 1
    tokens = asked.pop("batched_tokens", None)
    asked.setdefault("max_num_batched_tokens", (tokens or plan.defaults.batched_tokens) // ranks)
    if plan.serving and plan.serving.max_running:
        asked.setdefault("max_num_seqs", plan.serving.max_running // ranks)
    if "context_tokens" in asked and "max_model_len" in asked:
        del asked["context_tokens"]
    return asked


_DEFAULTS: Mapping[str, object] = {
    "placement": "fewest", "layer_partition": "balanced", "layer_bytes": "exact", "activations": "reserve",
    "concurrency": 1, "tower_mode": "weights",
}  # fmt: skip
_NOT_THE_ENGINES = (  # what a plan assumes of the hardware or of its own measure, and no engine is told
    "network", "scale_up", "scale_out", "devices_per_node", "hop_latency_ns", "hop_bytes_per_s", "hop_jitter_ns",
    "profile", "host_floor_ns", "host_step_ns", "host_sequence_ns", "sampling_step_ns", "sampling_sequence_ns",
    "front_end_ns", "ring_step_ns", "expert_imbalance", "context_tokens", "axes", "concurrency",
)  # fmt: skip


def _partition(engine: str, plan: Plan) -> list[str]:
    """The variable that gives layers per stage; empty where they are as the engine splits them itself."""
    counts = [len(stage.layers) for stage in plan.stages]
    split, variable = ("vllm", "VLLM_PP_LAYER_PARTITION") if engine == VLLM else ("sglang", "SGLANG_PP_LAYER_PARTITION")
    if len(counts) == 1 or counts == SPLITS[split](sum(counts), len(counts)):
        return []
    return [f"{variable}={','.join(map(str, counts))}"]


def _sizes(engine: str, shape: Shape) -> list[str] | str:
    """The flags of the division; what is 1 is left out."""
    if shape.cp > 1:
        return f"{engine} has no flag for context ranks of prefill"
    words: list[str] = []
    if engine == VLLM:
        if (
            shape.ep > 1
            and shape.ep != shape.tp * shape.replicas
            and not (shape.ep == shape.tp and shape.replicas == 1)
        ):
            return f"vllm spreads experts over all ranks, not over {shape.ep}"
        names = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
        words += ["--enable-expert-parallel"] * (shape.ep > 1)
    else:
        names = ("--tp-size", "--pp-size", "--dp-size")
        words += ["--ep-size", str(shape.ep)] if shape.ep > 1 else []
    for name, size in zip(names, (shape.tp, shape.pp, shape.replicas), strict=True):
        words += [name, str(size)] if size > 1 else []
    return words
