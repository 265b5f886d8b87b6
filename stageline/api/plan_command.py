"""The `stageline plan` command of a plan: its division, and a flag for every keyword that is not at its default."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stageline.api.keywords import PlanKeywords
from stageline.plan.shapes import Shape
from stageline.units import duration_text

PLAN_FILE = "plan.json"


def plan_command_text(
    names: tuple[str, str], shape: Shape, keywords: PlanKeywords, catalog_dirs: Sequence[Path] = ()
) -> str:
    """The command that writes the plan of a model on a device, given by `names`, to plan.json."""
    words = ["stageline", "plan", *names, *plan_words(shape, keywords, catalog_dirs)]
    return shlex.join([*words, "-o", PLAN_FILE])


def plan_words(shape: Shape, keywords: PlanKeywords, catalog_dirs: Sequence[Path] = ()) -> list[str]:
    """The flags of `stageline plan`."""
    words = _division(shape)
    for name, value in keywords.items():
        words += keyword_words(name, value)
    for directory in catalog_dirs:
        words += ["--catalog", str(directory)]
    return words


def keyword_words(name: str, value: Any) -> list[str]:
    """The flag of a keyword of `plan_model` with its value; nothing for a default, which needs no flag."""
    if name in _SWITCHES:
        on, off = _SWITCHES[name]
        return [] if value is None else [on] if value else [off] if off else []
    if value is None or value == () or value == _DEFAULTS.get(name):
        return []
    flag, text = _FLAGS.get(name, (f"--{name.replace('_', '-')}", str))
    return [flag, text(value)]


def _division(shape: Shape) -> list[str]:
    words = ["--devices", str(shape.devices // shape.replicas)]
    sizes = (("--replicas", shape.replicas), ("--tp", shape.tp), ("--ep", shape.ep), ("--cp", shape.cp))
    for flag, size in sizes:
        words += [flag, str(size)] if size > 1 else []
    return words


def _commas(values: Sequence[object]) -> str:
    return ",".join(map(str, values))


def _rate(bytes_per_s: int) -> str:
    return f"{bytes_per_s}B/s"


_ON = (  # switches that are off by default
    "consecutive", "sequence_parallel", "overlap", "whole_kv", "enforce_eager", "all_experts", "language_model_only",
)  # fmt: skip
_TIMES = (
    "hop_latency", "hop_jitter", "host_floor", "host_step", "host_sequence", "front_end", "ring_step", "sampling_step",
    "sampling_sequence",
)  # fmt: skip
_SWITCHES: Mapping[str, tuple[str, str]] = {  # the flag when on, and when off; empty: off is the default
    "prefix_cache": ("--enable-prefix-caching", "--no-enable-prefix-caching"),
    "async_scheduling": ("--async-scheduling", "--no-async-scheduling"),
    **{name: (f"--{name.replace('_', '-')}", "") for name in _ON},
}
_FLAGS: Mapping[str, tuple[str, Callable[[Any], str]]] = {  # where it is not the keyword's own name and its text
    "context_tokens": ("--context", str),
    "devices_by_stage": ("--stage-devices", str),
    "axes": ("--axis-order", _commas),
    "tower_mode": ("--mm-encoder-tp-mode", str),
    "cuda_graph_sizes": ("--cuda-graph-sizes", _commas),
    "kv_cache_bytes": ("--kv-cache-memory-bytes", str),
    "hop_bytes_per_s": ("--hop-bandwidth", _rate),
    **{f"{name}_ns": (f"--{name.replace('_', '-')}", duration_text) for name in _TIMES},
}
_DEFAULTS: Mapping[str, object] = {
    "weights": "as-shipped", "kv_cache_dtype": "auto", "state_dtype": "auto", "placement": "fewest",
    "layer_partition": "balanced", "layer_bytes": "exact", "redundant_experts": 0, "expert_imbalance": 0.0,
    "concurrency": 1, "activations": "auto", "hop_jitter_ns": 0, "tower_mode": "weights",
}  # fmt: skip
