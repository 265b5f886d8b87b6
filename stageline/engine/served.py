"""A fleet as engines run it: pools of replicas behind one router (rule 10). A plan alone is a fleet of one pool."""

from collections.abc import Sequence as Seq

from stageline.engine.fleet import Fleet, HandOver, LoadPolicy, Offload, Pool, Role, Tier
from stageline.engine.ports import Port
from stageline.engine.route import Route
from stageline.engine.settings import Scheduling


class ServedPool:
    """The replicas of one plan, with a route and scheduling settings of their own."""

    def __init__(self, name: str, route: Route, scheduling: Scheduling, role: Role = "both") -> None:
        self.name, self.route, self.scheduling, self.role = name, route, scheduling, role
        self.port = Port(1, 1, 0)  # of each replica; counts only where KV is handed over
        self.host: Tier | None = None  # host memory of each replica

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
        self.store: Tier | None = None
        self.offload: Offload = "evict"
        self.load: LoadPolicy = "cheaper"
        self.balance_sees_host = False
        self.pool_of: tuple[ServedPool, ...] = tuple(pool for pool in self.pools for _ in range(pool.replicas))

    @property
    def tiered(self) -> bool:
        """Whether KV may lie below some prefix cache."""
        return self.store is not None or any(pool.host is not None for pool in self.pools)

    @property
    def moves_kv(self) -> bool:
        """Whether replicas wait for KV from elsewhere, so that the router has timers of its own."""
        return self.hand_over is not None or self.tiered

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
    caches = any(pool.scheduling.prefix_cache for pool in fleet.pools)
    routing = Scheduling(balance=fleet.balance, front_end_ns=fleet.front_end_ns, prefix_cache=caches)
    pools = [_served(pool, fleet.hand_over) for pool in fleet.pools]
    whole = ServedFleet(pools, routing, fleet.hand_over)
    whole.store, whole.offload, whole.load = fleet.store, fleet.offload, fleet.load
    whole.balance_sees_host = fleet.balance_sees_host
    return whole


def _served(pool: Pool, hand_over: HandOver | None) -> ServedPool:
    served = ServedPool(pool.name, Route(pool.plan), pool.scheduling, pool.role)
    served.host = pool.host
    if hand_over is not None:
        served.port = port_of(pool, hand_over)
    return served


def port_of(pool: Pool, hand_over: HandOver) -> Port:
    """The port of each replica of a pool: what the pool says, else what the hand-over does."""
    return Port(
        egress_bytes_per_s=pool.egress_bytes_per_s or hand_over.bytes_per_s,
        ingress_bytes_per_s=pool.ingress_bytes_per_s or hand_over.bytes_per_s,
        latency_ns=hand_over.latency_ns if pool.port_latency_ns is None else pool.port_latency_ns,
    )
