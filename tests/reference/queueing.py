"""Rule 5: in which order a formation looks at the waiting sequences."""

from collections.abc import Callable

from stageline.engine.types import Request
from tests.reference.replica import Replica
from tests.reference.sequence import Sequence


def order(replica: Replica) -> list[Sequence]:
    """The queue as of now: preempted sequences, then by the policy's key, equal keys by arrival."""
    key = KEYS[replica.scheduling.queueing]
    return replica.preempted + sorted(replica.queue, key=lambda s: (key(replica, s.request), s.order))


def arrival(replica: Replica, request: Request) -> int:
    """All alike."""
    return 0


def shortest_prompt(replica: Replica, request: Request) -> int:
    """By length."""
    return request.prompt_tokens


def priority(replica: Replica, request: Request) -> int:
    """By number."""
    return request.priority


def longest_prefix(replica: Replica, request: Request) -> int:
    """By what the cache would save if it were admitted now, the most first."""
    assert replica.cache is not None
    return -replica.cache.longest(request.hash_ids, request.prompt_tokens)


KEYS: dict[str, Callable[[Replica, Request], int]] = {
    "fcfs": arrival,
    "shortest": shortest_prompt,
    "priority": priority,
    "longest-prefix": longest_prefix,
}
NEED_CACHE = ("longest-prefix",)
