"""Every idle nanosecond has one cause (rule 7): the microbatch's stamps and trail split the gap before it, in O(1)."""

from collections.abc import Callable, Sequence
from typing import Any

from stageline.engine.causes import GAP_CAUSES
from stageline.engine.microbatch import Item, Microbatch, Trail

TimeOrColumn = Any  # an integer of ns, or a column of them
Later = Callable[[TimeOrColumn, TimeOrColumn], TimeOrColumn]
ROUTER_CAUSES = 5  # as many as `router_ends` has


def router_ends(stamps: Any, later: Later = max) -> tuple[TimeOrColumn, ...]:
    """When each of the router's causes ends, in the order of GAP_CAUSES; each begins where the one before it ended.

    No work at the router before `work_since` (part of it without any request, part of it with KV on its way to all of
    them), no credit until `credit_since`, no KV room until the dispatch. `stamps` is a microbatch; or columns of the
    same names, for many gaps at once, and `later` numpy's maximum.
    """
    return (
        stamps.empty_since_ns,  # starved
        stamps.work_since_ns - stamps.transfer_wait_ns,  # empty
        stamps.work_since_ns,  # transfer
        later(stamps.work_since_ns, stamps.credit_since_ns),  # credit
        stamps.dispatch_ns,  # kv_blocked
    )


def way_ends(
    prev_end_ns: TimeOrColumn, late_ns: tuple[TimeOrColumn, TimeOrColumn], end_ns: TimeOrColumn
) -> tuple[TimeOrColumn, ...]:
    """As `router_ends`, for the causes on the way: other stages and their queues until `prev_end`, then the last link.

    `late_ns`: of the time at other stages, how much prefill chunks and how much slower stages have added.
    """
    chunk_wait_ns, lag_ns = late_ns
    chunks_since_ns = prev_end_ns - chunk_wait_ns
    return (
        chunks_since_ns - lag_ns,  # upstream
        chunks_since_ns,  # uneven
        prev_end_ns,  # chunk
        end_ns,  # hop
    )


def split_gap(start_ns: int, item: Item, late_ns: tuple[int, int]) -> list[int]:
    """The lengths of the causes of the gap from `start_ns` to the arrival of `item`, in the order of GAP_CAUSES."""
    parts = [0] * len(GAP_CAUSES)
    add_gap(parts, start_ns, item, late_ns)
    return parts


def add_gap(sums: list[int], start_ns: int, item: Item, late_ns: tuple[int, int]) -> None:
    """Add the parts of `split_gap` to `sums`. Each end of a cause is clamped to what is left of the gap."""
    mark, end_ns, microbatch = start_ns, item.arrival_ns, item.microbatch
    ends, cause = way_ends(item.trail.prev_end_ns, late_ns, end_ns), ROUTER_CAUSES
    if microbatch.dispatch_ns > start_ns:  # else it had left the router, whose stamps are no later than the dispatch
        ends, cause = router_ends(microbatch) + ends, 0
    for stamp in ends:
        if stamp > mark:
            if stamp >= end_ns:
                sums[cause] += end_ns - mark
                return
            sums[cause] += stamp - mark
            mark = stamp
        cause += 1


class Lateness:
    """Why microbatches reach the visits of one stage later than the one before them had left."""

    __slots__ = ("_chunk_wait_ns", "_lag_ns", "_last", "_shared", "_visit", "service_ns")

    def __init__(self, visits: Sequence[int]) -> None:
        self.service_ns = dict.fromkeys(visits, 0)  # of the last microbatch at each visit; 0 before the first
        # Of the last service: its visit, its microbatch, the lateness passed on. Only several visits make a difference.
        self._shared = len(visits) > 1
        self._visit, self._chunk_wait_ns, self._lag_ns = -1, 0, 0
        self._last: Microbatch | None = None

    def explain(self, visit: int, item: Item) -> tuple[int, int]:
        """What prefill chunks and slower stages have added to the gap before `item`: the `late_ns` of `split_gap`."""
        trail = item.trail
        chunk_wait, lag = trail.chunk_wait_ns, trail.pace_ns - self.service_ns[visit]
        lag = lag if lag > 0 else 0
        last = self._last
        if last is not None and last.number == item.microbatch.number:
            # Its own service begins the gap: only what came after that counts.
            return max(0, chunk_wait - self._chunk_wait_ns), max(0, lag - self._lag_ns)
        return chunk_wait, lag

    def pass_on(self, visit: int, item: Item, gap_ns: int, service_ns: int, end_ns: int) -> Trail:
        """What the visit passes on with `item`, which came `gap_ns` after the stage was free; negative: it queued."""
        trail, microbatch, before = item.trail, item.microbatch, self.service_ns[visit]
        if gap_ns > 0:
            late, lag = trail.chunk_wait_ns, trail.pace_ns - before
            if late > gap_ns:
                late = gap_ns
            if lag < 0:
                lag = 0
            elif lag > gap_ns:
                lag = gap_ns
        else:  # what delayed it before is made up for
            late, lag = 0, 0
            if self._last is not None and self._visit != visit and self._last.totals.prefill_tokens:
                late = min(-gap_ns, self.service_ns[self._visit])
        if service_ns > before and microbatch.totals.prefill_tokens:
            late += service_ns - before
        self.service_ns[visit] = service_ns
        if self._shared:
            self._visit, self._last = visit, microbatch
            self._chunk_wait_ns, self._lag_ns = late, lag
        return Trail(end_ns, late, before + lag)
