"""Rule 5: how many sequences, decode steps and tokens a microbatch may hold."""

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


def decode_limit(replica: Replica) -> int:
    """Of the members, the most that decode."""
    if replica.scheduling.batching != "decode-cap":
        return replica.microbatch_limit
    sequences = replica.scheduling.max_running or replica.microbatch_limit
    return -(-sequences // replica.credits_total)


def token_limit(replica: Replica) -> int:
    """The token budget."""
    if replica.scheduling.batching != "token-balanced":
        return replica.token_limit
    decoding = [s for s in replica.running if s.leaving or not s.todo_tokens]
    load = len(decoding) * (1 + replica.scheduling.speculate)
    load += sum(s.todo_tokens for s in replica.running + replica.waiting if not s.leaving)
    return min(max(-(-load // replica.credits_total), 1), replica.token_limit)


LIMITS: dict[str, Callable[[Replica], int]] = {
    "balanced": even_share,
    "greedy": whole_limit,
    "slo": slo_limit,
    "natural": whole_limit,
    "natural-async": whole_limit,
    "global-cap": even_share,
    "decode-cap": whole_limit,
    "token-balanced": whole_limit,
    "slots": whole_limit,
    "virtual-engines": whole_limit,
}
NEED_TPOT = ("slo",)
