"""What a run was made of, beside its plan: enough to make it again, as it was or with other settings."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stageline.engine.settings import MAX_COUNT, Scheduling
from stageline.units import duration_text

PPM = 1_000_000
_VALUES = (  # a field and its flag, which takes the value as it is
    "microbatch", "credits", "batched_tokens", "max_running", "batching", "queueing", "kv", "balance",
    "snapshot_tokens", "speculate",
)  # fmt: skip
_RANK_LIMITS = ("max_num_seqs",)  # of a data-parallel rank: `Scheduling` has them for the replica
_NOT_ASKED = frozenset({"hash_block_tokens", "tpot_slo_ns"})  # the workload's, and --slo's


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """`rerun` of summary.json: the workload as it was asked for, and every setting of the router."""

    workload: str
    seed: int
    rate_scale: str
    requests: int  # 0: no limit
    skip_bad_rows: bool
    sort: bool
    slo: str  # empty: no objective
    scheduling: Scheduling
    warmup: str = ""
    measure_window: str = ""
    price: float | None = None

    def command(self, plan: str, base: Scheduling, scheduling: Scheduling | None = None) -> str:
        """The command that makes this run, or the same with other settings; `base` is what the plan file sets."""
        words = ["stageline", "run", plan, "--workload", self.workload]
        if self.seed:
            words += ["--seed", str(self.seed)]
        if self.rate_scale != "1":
            words += ["--rate-scale", self.rate_scale]
        if self.requests:
            words += ["--requests", str(self.requests)]
        words += ["--skip-bad-rows"] * self.skip_bad_rows + ["--sort"] * self.sort
        for name, value in (("slo", self.slo), ("warmup", self.warmup), ("measure-window", self.measure_window)):
            words += [f"--{name}", value] if value else []
        words += [] if self.price is None else ["--price", f"{self.price:.12f}".rstrip("0").rstrip(".")]
        return shlex.join(words + flags(scheduling or self.scheduling, base))


def flags(scheduling: Scheduling, base: Scheduling) -> list[str]:
    """The flags of `stageline run` for all settings that are not those of the base."""
    changed = {n: v for n, v in msgspec.structs.asdict(scheduling).items() if v != getattr(base, n)}
    if changed.get("max_running") and scheduling.microbatch:
        changed["microbatch"] = scheduling.microbatch  # which would else follow
    if not scheduling.prefix_cache:
        changed.pop("snapshot_tokens", None)
    words: list[str] = []
    for name, value in changed.items():
        if name not in _NOT_ASKED:
            words += flag(name, MAX_COUNT if value is None else value)  # None: no limit, unlike the base
    return words


def flag(name: str, value: object) -> list[str]:
    """The words that give a field of `Scheduling` or a rank's limit a value. Raises KeyError for one without a flag."""
    if name in (*_VALUES, *_RANK_LIMITS):
        return [f"--{name.replace('_', '-')}", str(value)]
    return _OTHERS[name](value)


def _ppm(value: int) -> list[str]:
    return ["--acceptance", f"{value}/{PPM}" if value else "0"]


_OTHERS: Mapping[str, Callable[[Any], list[str]]] = {
    "prefix_cache": lambda value: ["--prefix-cache" if value else "--no-enable-prefix-caching"],
    "overhead_ns": lambda value: ["--overhead", duration_text(value)],
    "front_end_ns": lambda value: ["--front-end", duration_text(value)],
    "acceptance_ppm": _ppm,
    "draft_ns": lambda value: ["--draft-cost", duration_text(value)],
}
FIELDS_WITH_FLAGS = frozenset({*_VALUES, *_OTHERS, *_NOT_ASKED})
