"""Which microbatch brought a request's first token, found from times alone.

Microbatches return in the order of their numbers. A token that came back at t was in the last microbatch that had left
its last stage by t - latency of the return link: no later one can have been back by then.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from stageline.engine.types import RequestRecord


def first_token_flows(
    requests: Iterable[RequestRecord], ends_ns: Mapping[int, list[int]], latency_ns: Sequence[int]
) -> dict[tuple[int, int], list[int]]:
    """(replica, microbatch) -> indexes of the requests whose first token it brought.

    `ends_ns[replica][k]` is when microbatch k left its last stage, `latency_ns[replica]` that of the return link.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for record in requests:
        replica = _of_first_token(record)
        if record.first_token_ns is None or replica is None:
            continue
        number = bisect_right(ends_ns.get(replica, []), record.first_token_ns - latency_ns[replica]) - 1
        if number >= 0:
            found.setdefault((replica, number), []).append(record.index)
    return found


def _of_first_token(record: RequestRecord) -> int | None:
    """The replica that gave it: that of the prefill, unless KV had landed elsewhere before."""
    moved, first = record.hand_over, record.first_token_ns
    if moved is None or moved.landed_ns is None or first is None or first <= moved.landed_ns:
        return record.replica
    return moved.decode_replica
