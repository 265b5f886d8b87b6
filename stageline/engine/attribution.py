"""Every idle nanosecond has one cause (rule 7): a gap before a service is split by five stamps, in O(1)."""

from stageline.engine.microbatch import Microbatch

GAP_CAUSES = ("starved", "empty", "credit", "kv_blocked", "upstream", "hop")


def split_gap(start_ns: int, end_ns: int, microbatch: Microbatch, prev_end_ns: int) -> tuple[int, ...]:
    """The lengths of the causes of gap [start, end) in the order of GAP_CAUSES; they sum to its length.

    `microbatch` is the one whose service ends the gap. Each stamp, clamped to what is left of the gap, ends one cause:
    no work at the router before `work_since` (part of it without any request), no credit until `credit_since`, no KV
    until the dispatch, then other stages and queues until `prev_end`, and the rest on the last link.
    """
    if microbatch.dispatch_ns <= start_ns:  # all stamps of the router lie before the gap
        middle = min(max(prev_end_ns, start_ns), end_ns)
        return 0, 0, 0, 0, middle - start_ns, end_ns - middle
    work_since = microbatch.work_since_ns
    mark, parts = start_ns, []
    for stamp in (
        microbatch.empty_since_ns,
        work_since,
        max(work_since, microbatch.credit_since_ns),
        microbatch.dispatch_ns,
        prev_end_ns,
        end_ns,
    ):
        upto = min(max(stamp, mark), end_ns)
        parts.append(upto - mark)
        mark = upto
    return tuple(parts)
