"""Rule 7: which cause an idle nanosecond has, found in two ways that must agree."""

from bisect import bisect_right

from tests.reference.lateness import Lateness
from tests.reference.stage import Gap

RECORDED = ("starved", "empty", "credit", "kv_blocked", "upstream", "hop", "fill", "drain", "fault")  # zero or not
Timeline = list[tuple[int, str]]  # (from when, reason); a reason holds until the next entry


def clamp(x: int, low: int, high: int) -> int:
    """x, or the nearer end of [low, high]."""
    return min(max(x, low), high)


def by_timeline(gap: Gap, timeline: Timeline, lateness: Lateness) -> dict[str, int]:
    """Walk along the router's reasons up to the dispatch, then backwards from the end of the previous visit."""
    split: dict[str, int] = {}
    left_router_ns = clamp(gap.microbatch.dispatch_ns, gap.start_ns, gap.end_ns)
    first = bisect_right(timeline, gap.start_ns, key=lambda entry: entry[0]) - 1
    for i in range(first, len(timeline)):
        since_ns, reason = timeline[i]
        if since_ns >= left_router_ns:
            break
        until_ns = timeline[i + 1][0] if i + 1 < len(timeline) else left_router_ns
        overlap_ns = min(until_ns, left_router_ns) - max(since_ns, gap.start_ns)
        if overlap_ns > 0:
            split[reason] = split.get(reason, 0) + overlap_ns
    why = lateness.of_gap(gap)
    left_last_ns = clamp(gap.prev_end_ns, left_router_ns, gap.end_ns)
    split["hop"] = gap.end_ns - left_last_ns
    chunk_from_ns = clamp(gap.prev_end_ns - why.chunk_ns, left_router_ns, left_last_ns)
    split["chunk"] = left_last_ns - chunk_from_ns
    uneven_from_ns = clamp(gap.prev_end_ns - why.chunk_ns - why.lag_ns, left_router_ns, chunk_from_ns)
    split["uneven"] = chunk_from_ns - uneven_from_ns
    split["upstream"] = uneven_from_ns - left_router_ns
    return {cause: ns for cause, ns in split.items() if ns}


def by_stamps(gap: Gap) -> dict[str, int]:
    """The formula of the rule, from the stamps that the microbatch carries."""
    mb = gap.microbatch
    split: dict[str, int] = {}
    m = gap.start_ns
    for cause, until_ns in (
        ("starved", mb.empty_since_ns),
        ("empty", mb.transfer_since_ns),
        ("transfer", mb.work_since_ns),
        ("credit", max(mb.work_since_ns, mb.credit_since_ns)),
        ("kv_blocked", mb.dispatch_ns),
        ("upstream", gap.prev_end_ns - gap.chunk_wait_ns - gap.lag_ns),
        ("uneven", gap.prev_end_ns - gap.chunk_wait_ns),
        ("chunk", gap.prev_end_ns),
        ("hop", gap.end_ns),
    ):
        after = clamp(until_ns, m, gap.end_ns)
        split[cause] = after - m
        m = after
    return {cause: ns for cause, ns in split.items() if ns}
