"""Which replica an arriving request is bound to: one policy, one class."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence as Seq
from operator import attrgetter
from typing import Protocol

from stageline.engine.policies.registry import Policy, Registry
from stageline.engine.types import Request


class ReplicaState(Protocol):
    """What a routing policy may read of a replica: what its router knows, never a stage. It must change nothing."""

    @property
    def index(self) -> int:
        """Its number in the fleet."""
        ...

    @property
    def outstanding_tokens(self) -> int:
        """Tokens still to prefill, and those that may still be generated, of all its requests."""
        ...

    def kv_fill(self) -> int:
        """KV of the fullest stage, allocated or needed by the queue, in units of 2**-40 of its budget."""
        ...

    def cached_blocks(self, request: Request) -> int:
        """Blocks of the request's prompt that it would find in the prefix cache."""
        ...


class RoutingPolicy(Policy, ABC):
    """Chooses once, when a request arrives, among the replicas that could hold it. Ties go to the lowest index."""

    @abstractmethod
    def choose(self, replicas: Seq[ReplicaState], request: Request) -> int:
        """Index into `replicas`, which are in the order of their numbers."""


class RoundRobin(RoutingPolicy):
    """One replica after the other, by arrival."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, replicas: Seq[ReplicaState], request: Request) -> int:
        """See the class."""
        index = bisect_right(replicas, self._last, key=attrgetter("index")) % len(replicas)
        self._last = replicas[index].index
        return index


class LeastLoaded(RoutingPolicy):
    """The fewest outstanding tokens."""

    def choose(self, replicas: Seq[ReplicaState], request: Request) -> int:
        """See the class."""
        return min(range(len(replicas)), key=lambda i: (replicas[i].outstanding_tokens, i))


class MostKvFree(RoutingPolicy):
    """The least KV on the fullest stage, allocated or needed by the queue."""

    def choose(self, replicas: Seq[ReplicaState], request: Request) -> int:
        """See the class."""
        return min(range(len(replicas)), key=lambda i: (replicas[i].kv_fill(), i))


class MostCached(RoutingPolicy):
    """Where most of the prompt is cached; then the fewest outstanding tokens."""

    needs_prefix_cache = True

    def choose(self, replicas: Seq[ReplicaState], request: Request) -> int:
        """See the class."""

        def key(i: int) -> tuple[int, int, int]:
            return -replicas[i].cached_blocks(request), replicas[i].outstanding_tokens, i

        return min(range(len(replicas)), key=key)


ROUTING = Registry[RoutingPolicy](
    "balance",
    {
        "round-robin": RoundRobin,
        "least-loaded": LeastLoaded,
        "kv": MostKvFree,
        "prefix": MostCached,
    },
)
