"""Which replica an arriving request is bound to: one policy, one class."""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq

from stageline.engine.replica import Replica
from stageline.engine.types import Request


class BalancePolicy(ABC):
    """Chooses once, at arrival. Ties go to the lowest index."""

    @abstractmethod
    def choose(self, replicas: Seq[Replica], request: Request) -> int:
        """Index of the replica."""


class RoundRobin(BalancePolicy):
    """One after the other, by arrival."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, replicas: Seq[Replica], request: Request) -> int:
        """See the class."""
        index = self._next
        self._next = (index + 1) % len(replicas)
        return index


class LeastLoaded(BalancePolicy):
    """The fewest outstanding tokens: still to prefill, and still allowed to be generated."""

    def choose(self, replicas: Seq[Replica], request: Request) -> int:
        """See the class."""
        return min(range(len(replicas)), key=lambda i: (replicas[i].outstanding_tokens, i))


class MostKvFree(BalancePolicy):
    """The least KV on the fullest stage, held or about to be asked for by the queue."""

    def choose(self, replicas: Seq[Replica], request: Request) -> int:
        """See the class."""

        def fill(r: Replica) -> int:
            return r.mirror.fill(r.waiting_blocks, len(r.waiting), r.waiting_kept)

        return min(range(len(replicas)), key=lambda i: (fill(replicas[i]), i))


class LongestPrefix(BalancePolicy):
    """Where most of its prompt is cached; then the fewest outstanding tokens."""

    def choose(self, replicas: Seq[Replica], request: Request) -> int:
        """See the class."""

        def cached(replica: Replica) -> int:
            return len(replica.cache.match(request.hash_ids, request.prompt_tokens)) if replica.cache else 0

        return min(range(len(replicas)), key=lambda i: (-cached(replicas[i]), replicas[i].outstanding_tokens, i))


BALANCES: dict[str, type[BalancePolicy]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "kv": MostKvFree,
    "prefix": LongestPrefix,
}
