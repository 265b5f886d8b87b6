"""Which replica a request is bound to (rule 10): those of its model that could ever hold it, chosen by the policy."""

from collections.abc import Sequence as Seq
from typing import Literal

from stageline.engine.policies.routing import ROUTING
from stageline.engine.replica import Replica
from stageline.engine.served import ServedFleet
from stageline.engine.types import Request

Refusal = Literal["model", "context", "kv"]


class Binding:
    """Binds arriving requests. Replicas of one pool are alike, so what one could hold, all could."""

    def __init__(self, fleet: ServedFleet, replicas: Seq[Replica]) -> None:
        self._fleet = fleet
        self._routing = ROUTING.make(fleet.routing)
        self._pools = [[r for r, pool in zip(replicas, fleet.pool_of, strict=True) if pool is p] for p in fleet.pools]
        self._models = {pool.route.plan.model for pool in fleet.pools}

    def choose(self, request: Request) -> int:
        """The replica of a request that is not refused."""
        allowed = self._allowed(request)
        return allowed[self._routing.choose(allowed, request)].index

    def refusal(self, request: Request) -> Refusal | None:
        """Why no replica could ever serve it: another model, longer than the context, too large for empty ledgers."""
        reasons = [self._refused_by(pool, request) for pool in self._pools]
        if None in reasons:
            return None
        return max((reason for reason in reasons if reason), key=_NEARNESS.index)

    def _allowed(self, request: Request) -> Seq[Replica]:
        if len(self._pools) == 1:
            return self._pools[0]
        return [r for pool in self._pools if self._refused_by(pool, request) is None for r in pool]

    def _refused_by(self, pool: Seq[Replica], request: Request) -> Refusal | None:
        first = pool[0]
        if request.model != first.route.plan.model and (request.model or len(self._models) > 1):
            return "model"
        if request.prompt_tokens + request.max_output_tokens > first.route.max_context_tokens:
            return "context"
        return None if first.fits_empty(request) else "kv"


_NEARNESS: Seq[Refusal] = ("model", "context", "kv")  # of several reasons the last one counts
