"""Which replica a request is bound to (rule 10): those of its model that could ever hold it, chosen by the policy."""

import copy
from collections.abc import Sequence as Seq
from typing import Literal

import msgspec

from stageline.engine.policies.routing import ROUTING, RoutingPolicy
from stageline.engine.replica import Replica
from stageline.engine.served import ServedFleet
from stageline.engine.types import Request

Refusal = Literal["model", "context", "kv"]


class Binding:
    """Binds arriving requests. Replicas of one pool are alike, so what one could hold, all could."""

    def __init__(self, fleet: ServedFleet, replicas: Seq[Replica]) -> None:
        self._hand_over = fleet.hand_over
        self._routing = ROUTING.make(fleet.routing)
        self._decode_routing = ROUTING.make(fleet.routing)  # hand-overs are counted apart
        self._roles = [pool.role for pool in fleet.pools]
        self._pools = [[r for r, pool in zip(replicas, fleet.pool_of, strict=True) if pool is p] for p in fleet.pools]
        self._models = {pool.route.plan.model for pool in fleet.pools}

    def choose(self, request: Request) -> Replica:
        """The replica of an arriving request that is not refused."""
        near = self._near(request)
        if near is not None:
            replica, self._decode_routing = near
            return replica
        allowed = self._pools[0]
        if len(self._pools) > 1:
            allowed = [r for i, pool in enumerate(self._pools) if self._refusal_at(i, request) is None for r in pool]
        return allowed[self._routing.choose(allowed, request)]

    def choose_decode(self, request: Request) -> Replica:
        """The decode replica of a request that is not refused."""
        allowed = [r for pool in self._decode_pools(request) for r in pool]
        return allowed[self._decode_routing.choose(allowed, request)]

    def hands_over(self, request: Request) -> bool:
        """Whether more is wanted than a prefill replica gives."""
        return request.max_output_tokens > 1 or (
            self._hand_over is not None and self._hand_over.first_token == "decode"
        )

    def refusal(self, request: Request) -> Refusal | None:
        """Why no replica could ever serve it: another model, longer than the context, too large for empty ledgers."""
        reasons = [self._refusal_at(i, request) for i in range(len(self._pools))]
        if None in reasons or self._near(request) is not None:
            return None
        return max((reason for reason in reasons if reason), key=_NEARNESS.index)

    def _near(self, request: Request) -> tuple[Replica, RoutingPolicy] | None:
        """The decode replica whose turn it is, if little has to be prefilled there; and the policy once it is taken."""
        most_tokens = self._hand_over.local_prefill_tokens if self._hand_over is not None else 0
        allowed = [r for pool in self._decode_pools(request) for r in pool] if most_tokens else []
        if not allowed:
            return None
        turned = copy.copy(self._decode_routing)
        replica = allowed[turned.choose(allowed, request)]
        if request.prompt_tokens - replica.cached_tokens(request) > most_tokens:
            return None
        return replica, turned

    def _refusal_at(self, index: int, request: Request) -> Refusal | None:
        """Why a pool does not take an arriving request."""
        role, pool = self._roles[index], self._pools[index]
        if role == "decode":
            return "model"
        reason = self._refused_by(pool, request, prefill_part(request) if role == "prefill" else request)
        if reason is None and role == "prefill" and self.hands_over(request) and not self._decode_pools(request):
            return "kv"
        return reason

    def _decode_pools(self, request: Request) -> list[Seq[Replica]]:
        """Pools that could hold a hand-over."""
        roles = ("decode", "both") if self._hand_over and self._hand_over.decode_on_both else ("decode",)
        pools = (pool for role, pool in zip(self._roles, self._pools, strict=True) if role in roles)
        return [pool for pool in pools if self._refused_by(pool, request, request) is None]

    def _refused_by(self, pool: Seq[Replica], request: Request, held: Request) -> Refusal | None:
        """`held`: the part of it whose KV the pool would hold."""
        first = pool[0]
        if request.model != first.route.plan.model and (request.model or len(self._models) > 1):
            return "model"
        if held.prompt_tokens + held.max_output_tokens > first.route.max_context_tokens:
            return "context"
        return None if first.fits_empty(held) else "kv"


def prefill_part(request: Request) -> Request:
    """What a prefill replica sees of a request: its prompt, and one token."""
    return msgspec.structs.replace(request, output_tokens=1, max_output_tokens=1, output_hash_ids=())


_NEARNESS: Seq[Refusal] = ("model", "context", "kv")  # of several reasons the last one counts
