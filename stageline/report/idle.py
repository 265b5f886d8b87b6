"""Idle time by cause: the pieces of one gap, and the shares of many stages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stageline.engine.causes import BUBBLES, CAUSES, NOT_BUBBLES
from stageline.engine.types import StageRecord
from stageline.report.events import Gap


def gap_pieces(gap: Gap) -> Iterator[tuple[str, int, int]]:
    """Cause, begin and end of each part of a gap that is not empty, in the order of time."""
    at = gap.start_ns
    for cause in sorted(gap.idle_ns, key=CAUSES.index):
        begin, at = at, at + gap.idle_ns[cause]
        if at > begin:
            yield cause, begin, at


def cause_shares(stages: Sequence[StageRecord]) -> dict[str, float]:
    """Share of all stages' time by cause, and `busy`."""
    total = sum(s.window_ns for s in stages) or 1
    shares = {cause: sum(s.idle_ns.get(cause, 0) for s in stages) / total for cause in CAUSES}
    return {"busy": sum(s.busy_ns for s in stages) / total, **shares}


def share_with_work(shares: Mapping[str, float]) -> float:
    """Share of the stages' time in which there was something to serve: all but the causes that are not bubbles."""
    return 1 - sum(shares[cause] for cause in NOT_BUBBLES)


def run_bubble_ratio(stages: Iterable[StageRecord]) -> float:
    """Idle time that is a bubble over the time with work in the system, all stages together (rule 7)."""
    busy = idle = 0
    for stage in stages:
        busy += stage.busy_ns
        idle += sum(stage.idle_ns.get(cause, 0) for cause in BUBBLES)
    return idle / (busy + idle) if busy + idle else 0.0
