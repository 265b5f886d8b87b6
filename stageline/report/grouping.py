"""Putting like neighbours together, so that a table of 59 stages stays readable."""

from collections.abc import Sequence

import msgspec

from stageline.engine.types import CAUSES, StageRecord

_TOLERANCES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class StageGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive stages of one replica; shares of the window are their means, the KV peak is their largest."""

    label: str
    busy_ratio: float
    idle_ratio: dict[str, float]
    kv_peak_ratio: float


def group_stages(stages: Sequence[StageRecord], max_groups: int) -> list[StageGroup]:
    """Groups of neighbours whose shares differ by at most a tolerance, the smallest that leaves `max_groups` or fewer.

    Replicas are never mixed; with more replicas than `max_groups` there is one group per replica.
    """
    replicas = len({s.replica for s in stages})
    ordered = sorted(stages, key=lambda s: (s.replica, s.stage))
    runs: list[list[StageRecord]] = []
    for tolerance in _TOLERANCES:
        runs = _runs(ordered, tolerance)
        if len(runs) <= max_groups:
            break
    return [_group(run, replicas > 1) for run in runs]


def _runs(stages: Sequence[StageRecord], tolerance: float) -> list[list[StageRecord]]:
    runs: list[list[StageRecord]] = []
    for stage in stages:
        if runs and runs[-1][0].replica == stage.replica and _like(runs[-1][0], stage, tolerance):
            runs[-1].append(stage)
        else:
            runs.append([stage])
    return runs


def _like(a: StageRecord, b: StageRecord, tolerance: float) -> bool:
    pairs = [(_share(a, c), _share(b, c)) for c in CAUSES]
    pairs += [(_busy(a), _busy(b))]
    return all(abs(x - y) <= tolerance for x, y in pairs)


def _group(run: list[StageRecord], name_replica: bool) -> StageGroup:
    first, last = run[0], run[-1]
    label = str(first.stage) if len(run) == 1 else f"{first.stage}-{last.stage}"
    n = len(run)
    return StageGroup(
        label=f"{first.replica}/{label}" if name_replica else label,
        busy_ratio=sum(map(_busy, run)) / n,
        idle_ratio={c: sum(_share(s, c) for s in run) / n for c in CAUSES},
        kv_peak_ratio=max(s.kv_peak_bytes / s.kv_budget_bytes if s.kv_budget_bytes else 0.0 for s in run),
    )


def _busy(stage: StageRecord) -> float:
    return stage.busy_ns / stage.window_ns if stage.window_ns else 0.0


def _share(stage: StageRecord, cause: str) -> float:
    return stage.idle_ns.get(cause, 0) / stage.window_ns if stage.window_ns else 0.0
