"""Groups neighbouring stages that are alike, so that a table of 59 stages stays readable."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from stageline.engine.causes import CAUSES
from stageline.engine.types import StageRecord

SAME_SHARE = 0.0005  # difference between shares of the window that does not show in print


class StageGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive stages of one replica; shares of the window are means and ranges, the KV peak is the largest."""

    label: str
    busy_ratio: float
    idle_ratio: dict[str, float]
    ranges: dict[str, tuple[float, float]]  # least and most, of `busy` and the causes
    kv_peak_ratio: float


class _Neighbours:
    """Stages `first` to `last` of a replica, and the mean of their shares (busy, then CAUSES)."""

    def __init__(self, stage: StageRecord) -> None:
        window = stage.window_ns or 1
        self.replica, self.first, self.last, self.count = stage.replica, stage.stage, stage.stage, 1
        self.shares = [stage.busy_ns / window, *(stage.idle_ns.get(c, 0) / window for c in CAUSES)]
        self.least, self.most = list(self.shares), list(self.shares)
        self.kv = stage.kv_peak_bytes / stage.kv_budget_bytes if stage.kv_budget_bytes else 0.0

    def distance(self, other: "_Neighbours") -> float:
        """Largest difference of a share; replicas are never mixed."""
        if self.replica != other.replica:
            return 2.0
        return max(abs(a - b) for a, b in zip(self.shares, other.shares, strict=True))

    def absorb(self, other: "_Neighbours") -> None:
        """Merges the group that follows."""
        total = self.count + other.count
        pairs = zip(self.shares, other.shares, strict=True)
        self.shares = [(a * self.count + b * other.count) / total for a, b in pairs]
        self.least = list(map(min, self.least, other.least))
        self.most = list(map(max, self.most, other.most))
        self.kv = max(self.kv, other.kv)
        self.last, self.count = other.last, total


def group_stages(stages: Sequence[StageRecord], max_groups: int, name: Callable[[int], str] = str) -> list[StageGroup]:
    """Merges the two most similar neighbours until all differ visibly and at most `max_groups` are left.

    With more replicas than `max_groups` there is one group per replica. `name` is what a replica is called.
    """
    runs = [_Neighbours(s) for s in sorted(stages, key=lambda s: (s.replica, s.stage))]
    while len(runs) > 1:
        distances = [a.distance(b) for a, b in pairwise(runs)]
        least = min(distances)
        if least > 1.0 or (least > SAME_SHARE and len(runs) <= max_groups):
            break
        at = distances.index(least)
        runs[at].absorb(runs.pop(at + 1))
    several = len({s.replica for s in stages}) > 1
    return [_group(run, name(run.replica) if several else "") for run in runs]


def _group(run: _Neighbours, replica: str) -> StageGroup:
    label = str(run.first) if run.count == 1 else f"{run.first}-{run.last}"
    return StageGroup(
        label=f"{replica}/{label}" if replica else label,
        busy_ratio=run.shares[0],
        idle_ratio=dict(zip(CAUSES, run.shares[1:], strict=True)),
        ranges=dict(zip(("busy", *CAUSES), zip(run.least, run.most, strict=True), strict=True)),
        kv_peak_ratio=run.kv,
    )
