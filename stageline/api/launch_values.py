"""How values of serving engines' flags read: as values of the Python API's keywords, or ValueError saying why not."""

import json
import re
from typing import Any, Literal

from stageline.api.launch_command import PLACE
from stageline.errors import BadInput

_SUFFIXED = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMgG]?)")
_SUFFIXES = {"": 1, "k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}


def whole(text: str) -> int:
    """A whole number from 1 up."""
    if not re.fullmatch(r"[0-9]+", text) or not text.strip("0"):
        raise ValueError("not a positive whole number")
    if len(text) > 12:
        raise ValueError("too large: more than 12 digits")
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


def memory(text: str) -> int:
    """A number of bytes with vLLM's suffixes: g = 10^9, G = 2^30."""
    try:
        return tokens(text)
    except ValueError:
        raise ValueError("not a whole number of bytes") from None


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


def quantization(text: str) -> str | None:
    """How weights are quantised, in the engine's own word (`stageline.api.quantization`); vLLM takes any case."""
    return None if text.lower() in ("none", "unquant") else text.lower()


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


def optimization(text: str) -> dict[str, Any]:
    """vLLM's --optimization-level (-O): 2 and 3 capture whole steps, 0 nothing; once -O was the configuration."""
    if text.strip().startswith("{"):
        return compilation(text)
    if text not in ("0", "2", "3"):
        raise ValueError("graphs for pieces of a step alone are not emulated" if text == "1" else "not a level")
    return {"enforce_eager": True} if text == "0" else {}


def rope_scaling(text: str) -> str:
    """A rope_scaling, as the override of a config that it is."""
    return json.dumps({"rope_scaling": json_fields(text)})


def performance_mode(text: str) -> dict[str, Any]:
    """vLLM's --performance-mode: balanced is the default, the others stand for settings of their own."""
    if text != "balanced":
        raise ValueError("other limits and graph sizes than the engine's defaults")
    return {}


def tower_mode(text: str) -> str:
    """vLLM's --mm-encoder-tp-mode: whether ranks divide the vision tower's weights, or each holds them all."""
    if text not in ("weights", "data"):
        raise ValueError("not a way to divide a vision tower")
    return text


def switched_on(text: str) -> bool:
    """A variable that is 1 or 0."""
    if text not in ("0", "1"):
        raise ValueError("neither 0 nor 1")
    return text == "1"


def vllm_together(found: dict[str, Any]) -> dict[str, Any]:
    """vLLM's settings that mean something only together: any --max-model-len, where a variable allows it."""
    length = found.get("max_model_len")
    if found.pop("any_length", False) and isinstance(length, int):
        fields = json_fields(found.get("hf_overrides", "{}"))
        found["hf_overrides"] = json.dumps(fields | {"max_model_len": length})
    return found


def images(text: str) -> dict[str, Any]:
    """vLLM's --limit-mm-per-prompt: without images and videos no tower is loaded; other limits change nothing here."""
    fields = json_fields(text) if text.strip().startswith("{") else dict(p.partition("=")[::2] for p in text.split(","))
    none = all(str(fields.get(kind)) == "0" for kind in ("image", "video"))
    return {"language_model_only": True} if none else {}


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


def model_length(text: str) -> int | Literal["auto"]:
    """vLLM's --max-model-len; `auto` and -1 are the longest that fits."""
    return "auto" if text in ("auto", "-1") else tokens(text)


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


def _sglang_speculation(found: dict[str, Any]) -> dict[str, Any]:
    """SGLang's flags of speculation as one keyword.

    Raises ValueError for a tree of drafts, and for flags without an algorithm.

    EAGLE without a draft model is the model's own MTP layer (docs.sglang.io, speculative decoding).
    """
    names = ("algorithm", "steps", "topk", "tokens", "model")
    given = {name: found.pop(f"speculative_{name}") for name in names if f"speculative_{name}" in found}
    if not given:
        return found
    algorithm, steps, tokens = given.get("algorithm"), given.get("steps"), given.get("tokens")
    methods = {"EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp", "STANDALONE": "draft_model", "NGRAM": "ngram"}
    if algorithm not in methods:
        raise ValueError(f"--speculative-algorithm {algorithm}: not emulated; known: {', '.join(methods)}")
    if given.get("topk", 1) > 1 or (steps and tokens and tokens != steps + 1):
        raise ValueError("a tree of drafts (--speculative-eagle-topk above 1) is not emulated")
    drafts = steps or (tokens - 1 if tokens else None)
    if not drafts:
        raise ValueError("give --speculative-num-steps: SGLang's default depends on the model")
    method = "mtp" if algorithm == "EAGLE" and "model" not in given else methods[algorithm]
    config = {"method": method, "num_speculative_tokens": drafts}
    config |= {"model": given["model"]} if "model" in given and method != "mtp" else {}
    return found | {"speculative_config": json.dumps(config)}


def v1_engine(text: str) -> dict[str, Any]:
    """VLLM_USE_V1: the V1 engine, which is the only one by now."""
    if text != "1":
        raise ValueError("the V0 engine is not emulated")
    return {}


def chunk(text: str) -> int:
    """SGLang's --chunked-prefill-size; -1 turns chunks off."""
    if text == "-1":
        raise ValueError("prefill without chunks is not emulated")
    return whole(text)


def one_beam(text: str) -> dict[str, Any]:
    """A beam of one sequence is no beam search."""
    if text != "1":
        raise ValueError("beam search is not emulated")
    return {}


def sglang_together(found: dict[str, Any]) -> dict[str, Any]:
    """SGLang's flags that mean something only together. Raises ValueError or BadInput."""
    depth = found.pop("pipeline_depth", 0)
    if depth:
        found["credits"] = found.get("stages", 1) + depth
    return _sglang_ranks(_sglang_speculation(found))


def _sglang_ranks(found: dict[str, Any]) -> dict[str, Any]:
    """Data-parallel attention and spread experts, in the keywords of a plan. Raises BadInput.

    With it --tp-size counts all ranks, attention has tp / dp of them, and limits are those of all replicas together.
    """
    spread, divided = found.pop("experts_on_all_ranks", False), found.pop("dp_attention", False)
    ranks, copies = found.get("tensor_parallel", 1), found.get("replicas", 1)
    if spread:
        found["expert_parallel"] = ranks
    if not divided or copies == 1:
        return found
    place = f"{PLACE} --enable-dp-attention"
    if ranks % copies:
        raise BadInput(place, ranks, f"--tp-size is not a multiple of the {copies} replicas of --dp-size")
    if found.pop("expert_parallel", 1) != ranks:
        reason = "experts whose width is split over replicas of attention are not emulated"
        raise BadInput(place, None, reason, f"spread them: --ep-size {ranks}")
    for limit in ("max_num_seqs", "max_num_batched_tokens"):
        if limit in found:
            found[limit] = max(1, found[limit] // copies)
    return found | {"tensor_parallel": ranks // copies, "all_experts": True}
