"""A fleet as engines run it: pools of replicas behind one router (rule 10). A plan alone is a fleet of one pool."""

from collections.abc import Sequence as Seq

from stageline.engine.fleet import Fleet, HandOver, Pool, Role
from stageline.engine.route import Route
from stageline.engine.settings import Scheduling


class ServedPool:
    """The replicas of one plan, with a route and scheduling settings of their own."""

    def __init__(self, name: str, route: Route, scheduling: Scheduling, role: Role = "both") -> None:
        self.name, self.route, self.scheduling, self.role = name, route, scheduling, role
        self.egress_bytes_per_s = self.ingress_bytes_per_s = 0  # of a replica's ports; 0: the hand-over's bandwidth

    @property
    def replicas(self) -> int:
        """How many replicas it has."""
        return self.route.plan.replicas


class ServedFleet:
    """The pools of a fleet in file order. Replicas are numbered through all of them; read-only.

    `routing` has the settings of the router itself: the routing policy and the front end.
    """

    def __init__(self, pools: Seq[ServedPool], routing: Scheduling, hand_over: HandOver | None = None) -> None:
        self.pools, self.routing, self.hand_over = tuple(pools), routing, hand_over
        self.pool_of: tuple[ServedPool, ...] = tuple(pool for pool in self.pools for _ in range(pool.replicas))

    @property
    def replicas(self) -> int:
        """Replicas of all pools."""
        return len(self.pool_of)

    def route(self, replica: int) -> Route:
        """The route of a replica, by its number in the fleet."""
        return self.pool_of[replica].route

    @property
    def routes(self) -> list[Route]:
        """By replica."""
        return [pool.route for pool in self.pool_of]


def one_pool(route: Route, scheduling: Scheduling) -> ServedFleet:
    """A plan alone."""
    return ServedFleet([ServedPool("", route, scheduling)], scheduling)


def serve(fleet: Fleet) -> ServedFleet:
    """What engines need of a fleet file."""
    cached = any(pool.scheduling.prefix_cache for pool in fleet.pools)
    routing = Scheduling(balance=fleet.balance, front_end_ns=fleet.front_end_ns, prefix_cache=cached)
    return ServedFleet([_served(pool) for pool in fleet.pools], routing, fleet.hand_over)


def _served(pool: Pool) -> ServedPool:
    served = ServedPool(pool.name, Route(pool.plan), pool.scheduling, pool.role)
    served.egress_bytes_per_s, served.ingress_bytes_per_s = pool.egress_bytes_per_s, pool.ingress_bytes_per_s
    return served
