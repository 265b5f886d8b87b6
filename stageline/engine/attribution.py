"""Every idle nanosecond has one cause (rule 7): the microbatch's stamps and trail split the gap before it, in O(1)."""

from collections.abc import Callable, Iterable
from typing import Any

from stageline.engine.microbatch import Item, Trail

TimeOrColumn = Any  # an integer of ns, or a column of them
Later = Callable[[TimeOrColumn, TimeOrColumn], TimeOrColumn]
ROUTER_CAUSES = 4  # as many as `router_ends` has


def router_ends(stamps: Any, later: Later = max) -> tuple[TimeOrColumn, ...]:
    """When each of the router's causes ends, in the order of GAP_CAUSES; each begins where the one before it ended.

    No work at the router before `work_since` (part of it without any request), no credit until `credit_since`, no KV
    room until the dispatch. `stamps` is a microbatch; or columns of the same names, for many gaps at once, and `later`
    numpy's maximum.
    """
    return (
        stamps.empty_since_ns,  # starved
        stamps.work_since_ns,  # empty
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
    """The lengths of the causes of the gap from `start_ns` to the arrival of `item`, in the order of GAP_CAUSES.

    They sum to its length: each end of a cause is clamped to what is left of the gap.
    """
    mark, end_ns, microbatch = start_ns, item.arrival_ns, item.microbatch
    ends = way_ends(item.trail.prev_end_ns, late_ns, end_ns)
    if microbatch.dispatch_ns > start_ns:
        parts, ends = [], router_ends(microbatch) + ends
    else:  # it had left the router, whose stamps are no later than the dispatch
        parts = [0] * ROUTER_CAUSES
    for stamp in ends:
        upto = mark if stamp <= mark else stamp if stamp < end_ns else end_ns  # a clamp, faster than min and max
        parts.append(upto - mark)
        mark = upto
    return parts


class Lateness:
    """Why microbatches reach the visits of one stage later than the one before them had left."""

    __slots__ = ("_chunk_ns", "_chunk_wait_ns", "_lag_ns", "_number", "_visit", "service_ns")

    def __init__(self, visits: Iterable[int]) -> None:
        self.service_ns = dict.fromkeys(visits, 0)  # of the last microbatch at each visit; 0 before the first
        # Of the last service: its visit, its microbatch, its length if that had prefill tokens, the lateness passed on.
        self._visit, self._number, self._chunk_ns = -1, -1, 0
        self._chunk_wait_ns, self._lag_ns = 0, 0

    def explain(self, visit: int, item: Item) -> tuple[int, int]:
        """What prefill chunks and slower stages have added to the gap before `item`: the `late_ns` of `split_gap`."""
        trail = item.trail
        chunk_wait, lag = trail.chunk_wait_ns, trail.pace_ns - self.service_ns[visit]
        lag = lag if lag > 0 else 0
        if self._number == item.microbatch.number:  # its own service begins the gap: only what came after that counts
            return max(0, chunk_wait - self._chunk_wait_ns), max(0, lag - self._lag_ns)
        return chunk_wait, lag

    def pass_on(self, visit: int, item: Item, free_ns: int, end_ns: int) -> Trail:
        """What the visit passes on with `item`, served until `end_ns` by a stage that was free from `free_ns` on."""
        trail, microbatch, before = item.trail, item.microbatch, self.service_ns[visit]
        gap = item.arrival_ns - free_ns
        if gap > 0:
            service = end_ns - item.arrival_ns
            late, lag = trail.chunk_wait_ns, trail.pace_ns - before
            late = late if late < gap else gap
            lag = 0 if lag < 0 else lag if lag < gap else gap
        else:  # it had to queue, and what delayed it before is made up for
            service, late, lag = end_ns - free_ns, 0, 0
            if self._chunk_ns and self._visit != visit:
                late = min(-gap, self._chunk_ns)
        self.service_ns[visit] = service
        if microbatch.totals.prefill_tokens:
            self._chunk_ns = service
            if service > before:
                late += service - before
        else:
            self._chunk_ns = 0
        self._visit, self._number = visit, microbatch.number
        self._chunk_wait_ns, self._lag_ns = late, lag
        return Trail(end_ns, late, before + lag)
