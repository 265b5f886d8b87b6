"""Which microbatch brought a request's first token, found from times alone.

Completions come back in the order of microbatches. A token sampled at t came with the last microbatch that had left its
last stage by t - latency of the return link: no later one can have been back by then.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from stageline.engine.types import RequestRecord


def first_token_flows(
    requests: Iterable[RequestRecord], ends_ns: Mapping[int, list[int]], latency_ns: int
) -> dict[tuple[int, int], list[int]]:
    """(replica, microbatch) -> indexes of the requests whose first token it brought.

    `ends_ns[replica][k]` is when microbatch k left its last stage.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for record in requests:
        if record.first_token_ns is None or record.replica is None:
            continue
        sequence = bisect_right(ends_ns.get(record.replica, []), record.first_token_ns - latency_ns) - 1
        if sequence >= 0:
            found.setdefault((record.replica, sequence), []).append(record.index)
    return found
