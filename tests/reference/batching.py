"""Rule 5: how many sequences a microbatch may hold."""

from collections.abc import Callable

from tests.reference.replica import Replica
from tests.reference.slo import slo_limit


def sequence_limit(replica: Replica) -> int:
    """By the batching policy."""
    return LIMITS[replica.scheduling.batching](replica)


def even_share(replica: Replica) -> int:
    """All requests spread over all credits, at least one, at most the limit."""
    share = -(-replica.requests // replica.credits_total)
    return min(max(share, 1), replica.microbatch_limit)


def whole_limit(replica: Replica) -> int:
    """As many as a microbatch may hold."""
    return replica.microbatch_limit


LIMITS: dict[str, Callable[[Replica], int]] = {
    "balanced": even_share,
    "greedy": whole_limit,
    "slo": slo_limit,
}
NEED_TPOT = ("slo",)
