"""What `tune` may change: for every setting of the router some other values, those of the causes that bind first."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from stageline.engine.causes import TABLE
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.kv import KV
from stageline.engine.policies.queueing import QUEUEING
from stageline.engine.policies.routing import ROUTING
from stageline.engine.settings import Scheduling, data_parallel_ranks
from stageline.engine.types import StageRecord
from stageline.plan.schema import Plan
from stageline.report.idle import cause_shares
from stageline.report.run_costs import in_flight
from stageline.report.summary import Summary

Value = int | str | bool
MAX_VALUE = 1 << 16
SHORT_OF_KV = 0.85  # peak of the fullest ledger
AXES: Mapping[str, Sequence[str]] = {
    "batching": tuple(BATCHING.built_in),
    "queueing": tuple(QUEUEING.built_in),
    "kv": tuple(KV.built_in),
    "balance": tuple(ROUTING.built_in),
}


class Move(NamedTuple):
    """One setting, and the value to try."""

    setting: str
    value: Value

    @property
    def limit(self) -> str:
        """What it sets: two flags of one limit can't be given together."""
        return "max_running" if self.setting == "max_num_seqs" else self.setting


def moves(plan: Plan, scheduling: Scheduling, summary: Summary, stages: Sequence[StageRecord]) -> list[Move]:
    """Every move, the settings that can move what binds first; within a setting the values nearest to today's first."""
    weights = relevance(summary, stages)
    by_setting: dict[str, list[Value]] = {
        setting: list(found) for setting, found in _by_setting(plan, scheduling, summary)
    }
    names = sorted(by_setting, key=lambda name: -weights.get(name, 0.0))
    depth = max(map(len, by_setting.values()))
    return [Move(name, by_setting[name][i]) for i in range(depth) for name in names if i < len(by_setting[name])]


def relevance(summary: Summary, stages: Sequence[StageRecord]) -> dict[str, float]:
    """Share of the stages' time whose causes a setting can move, and what else points at it."""
    shares = cause_shares(stages)
    found: dict[str, float] = {}
    for cause in TABLE:
        for setting in cause.settings:
            found[setting] = found.get(setting, 0.0) + shares[cause.name]
    queue, whole = summary.queue_s.p50 or 0.0, summary.e2e_s.p50 or 0.0
    waits = queue / whole if whole else 0.0
    for setting in ("queueing", "balance", "max_running"):
        found[setting] = found.get(setting, 0.0) + waits
    for setting in ("microbatch", "batched_tokens"):
        found[setting] = found.get(setting, 0.0) + shares["busy"]
    found["max_num_seqs"] = max(found.get("microbatch", 0.0), found.get("max_running", 0.0))
    if summary.kv_peak_ratio > SHORT_OF_KV or summary.preemptions:
        for setting in ("kv", "max_running", "prefix_cache"):
            found[setting] = found.get(setting, 0.0) + 1.0
    return found


def _by_setting(plan: Plan, scheduling: Scheduling, summary: Summary) -> Iterator[tuple[str, Sequence[Value]]]:
    defaults, stages = plan.defaults, len(plan.visits)
    tokens = scheduling.batched_tokens or defaults.batched_tokens
    size, window = scheduling.microbatch or defaults.microbatch, scheduling.credits or defaults.credits
    served = max(1, round(in_flight(summary) / plan.replicas))
    running = min(scheduling.max_running or served, served)
    yield "batched_tokens", _scaled(tokens, (1 / 4, 4, 1 / 16, 16, 1 / 2, 2, 1 / 8), floor=8)
    yield "microbatch", _down_and_up(_scaled(min(size, served), (1 / 2, 1 / 4, 1 / 8)), _scaled(size, (2, 4, 8, 16)))
    yield "credits", [*_scaled(window, (2, 1 / 2, 4, 1 / 4)), *([stages] if stages != window else [])]
    more = [] if scheduling.max_running is None else _scaled(scheduling.max_running, (2, 4))
    mean = [running] if running != scheduling.max_running else []  # crowds are larger at times, and wait
    fewer = _scaled(running, (1 / 2, 1 / 4, 1 / 8))
    yield "max_running", [*fewer[:1], *mean, *fewer[1:], *more]
    if scheduling.max_running is not None and scheduling.microbatch is not None:  # limits of an engine's rank
        rank = max(1, scheduling.max_running // data_parallel_ranks(plan))
        yield "max_num_seqs", _scaled(rank, (4, 1 / 2, 16, 2, 1 / 4, 8, 64))
    for axis, names in AXES.items():
        if axis == "balance" and plan.replicas == 1:
            continue
        yield axis, [name for name in names if name != getattr(scheduling, axis)]
    if not scheduling.prefix_cache:
        yield "prefix_cache", [True]


def _down_and_up(down: Sequence[int], up: Sequence[int]) -> list[int]:
    """One of each in turn."""
    return [v for pair in zip_longest(down, up) for v in pair if v is not None]


def _scaled(now: int, factors: Sequence[float], floor: int = 1) -> list[int]:
    """Other values around today's, without repetition."""
    values = [max(floor, int(now * factor)) for factor in factors]
    return [v for v in dict.fromkeys(values) if v <= MAX_VALUE and v != now]
