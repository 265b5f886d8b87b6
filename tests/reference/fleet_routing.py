"""Rule 10: which replicas of a fleet are asked, and which one is taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from stageline.engine.types import Request
from tests.reference import routing
from tests.reference.fleet_replica import FleetReplica
from tests.reference.fleet_types import Fleet


@dataclass(slots=True)
class Routes:
    """The router's choices; one counter for arrivals, one for hand-overs."""

    fleet: Fleet
    replicas: Sequence[FleetReplica]
    models: Mapping[int, str]  # of the requests that name one
    last_arrival: int = -1
    last_handover: int = field(default=-1)

    def serves(self, replica: FleetReplica, request: Request) -> bool:
        """Whether it has the request's model: the one that it names, or the fleet's only one."""
        names = {pool.plan.model for pool in self.fleet.pools}
        wanted = self.models.get(request.index) or (names.pop() if len(names) == 1 else None)
        return replica.plan.model == wanted

    def decodes(self, replica: FleetReplica) -> bool:
        """Whether hand-overs may go there."""
        return replica.pool.role == "decode" or (replica.pool.role == "both" and self.fleet.both_decodes)

    def whole(self, request: Request) -> list[FleetReplica]:
        """Replicas that may decode the request after a hand-over."""
        return [r for r in self.replicas if self.decodes(r) and self.serves(r, request) and holds(r, request)]

    def arrivals(self, request: Request) -> list[FleetReplica]:
        """Replicas that may take it as it arrives; a prefill replica only if somebody could go on from there."""
        able = [r for r in self.replicas if r.pool.role != "decode" and self.serves(r, request)]
        goes_on = self.needs_no_decode(request) or bool(self.whole(request))
        return [
            r
            for r in able
            if holds(r, part_of(r, request)) and (r.pool.role == "both" or goes_on)
        ]  # fmt: skip

    def needs_no_decode(self, request: Request) -> bool:
        """Whether the prefill replica is sure to give it all that it wants."""
        return request.max_output_tokens == 1 and self.fleet.first_token == "prefill"

    def for_arrival(self, request: Request) -> FleetReplica | None:
        """The replica that a request is bound to first. None: nobody can ever serve it."""
        straight = self.straight(request)
        if straight is not None:
            self.last_handover = straight.index
            return straight
        replica = self.choose(self.arrivals(request), request, self.last_arrival)
        if replica is not None:
            self.last_arrival = replica.index
        return replica

    def straight(self, request: Request) -> FleetReplica | None:
        """The decode replica that would be next, if little enough of the prompt would have to be computed there."""
        limit_tokens = self.fleet.conditional_tokens
        if limit_tokens is None:
            return None
        replica = self.choose(self.whole(request), request, self.last_handover)
        if replica is None:
            return None
        cached_tokens = routing.found(replica, request) * (replica.cache.block_tokens if replica.cache else 0)
        return replica if request.prompt_tokens - cached_tokens <= limit_tokens else None

    def for_handover(self, request: Request) -> FleetReplica:
        """The replica that decodes it."""
        replica = self.choose(self.whole(request), request, self.last_handover)
        assert replica is not None, "nobody was to be asked for a prefill that nobody can go on from"
        self.last_handover = replica.index
        return replica

    def choose(self, replicas: list[FleetReplica], request: Request, last: int) -> FleetReplica | None:
        """By the balance policy; round-robin takes the next one after the last choice."""
        if not replicas:
            return None
        if self.fleet.balance == "round-robin":
            return min(replicas, key=lambda r: (r.index - last - 1) % len(self.replicas))
        key = routing.CHOICES[self.fleet.balance]
        return min(replicas, key=lambda r: (key(r, request), r.index))


def part_of(replica: FleetReplica, request: Request) -> Request:
    """What a replica sees of a request that arrives there: a prefill replica one output token of it."""
    if replica.pool.role != "prefill":
        return request
    return msgspec.structs.replace(request, output_tokens=1, max_output_tokens=1)


def holds(replica: FleetReplica, request: Request) -> bool:
    """Whether its context and its empty ledgers are large enough."""
    return routing.is_taken(replica.plan, replica.scheduling, request)
