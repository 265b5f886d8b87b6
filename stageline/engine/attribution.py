"""Every idle nanosecond has one cause (rule 7): five stamps split the gap before a service, in O(1)."""

from collections.abc import Callable
from typing import Any

from stageline.engine.microbatch import Microbatch

TimeOrColumn = Any  # an integer of ns, or a column of them


def cause_ends(
    stamps: Any,
    prev_end_ns: TimeOrColumn,
    end_ns: TimeOrColumn,
    later: Callable[[TimeOrColumn, TimeOrColumn], TimeOrColumn] = max,
) -> tuple[TimeOrColumn, ...]:
    """When each cause in GAP_CAUSES ends, in that order; each begins where the one before it ended.

    No work at the router before `work_since` (part of it without any request), no credit until `credit_since`, no KV
    room until the dispatch, then other stages and their queues until `prev_end`, and the rest on the link that leads
    here. `stamps` is a microbatch; or columns of the same names, for many gaps at once, and `later` numpy's maximum.
    """
    return (
        stamps.empty_since_ns,  # starved
        stamps.work_since_ns,  # empty
        later(stamps.work_since_ns, stamps.credit_since_ns),  # credit
        stamps.dispatch_ns,  # kv_blocked
        prev_end_ns,  # upstream
        end_ns,  # hop
    )


def split_gap(start_ns: int, end_ns: int, microbatch: Microbatch, prev_end_ns: int) -> tuple[int, ...]:
    """The lengths of the causes of gap [start, end) in the order of GAP_CAUSES; they sum to its length.

    `microbatch` is the one whose service ends the gap. Each end of a cause is clamped to what is left of the gap.
    """
    mark, parts = start_ns, []
    for stamp in cause_ends(microbatch, prev_end_ns, end_ns):
        upto = mark if stamp <= mark else stamp if stamp < end_ns else end_ns  # a clamp, faster than min and max
        parts.append(upto - mark)
        mark = upto
    return tuple(parts)
