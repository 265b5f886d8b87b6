"""What servers serve: a plan alone, or a fleet of pools (rule 10)."""

from collections.abc import Iterator
from pathlib import Path

from stageline.engine.fleet import Fleet
from stageline.engine.fleet_check import parse_fleet
from stageline.engine.route import Route
from stageline.engine.served import ServedFleet, one_pool, serve
from stageline.engine.settings import Scheduling, plan_scheduling
from stageline.plan.parse import parse_plan
from stageline.plan.schema import Plan
from stageline.runtime.names import replica_name
from stageline.runtime.plans import is_fleet, is_fleet_file, read_plan_file

Document = Plan | Fleet


class Deployment:
    """A plan alone or a fleet, with the routes of its pools; read-only. Replicas are numbered through all pools.

    `fleet`: what engines run, a plan alone with the settings of its serving engine.
    """

    def __init__(self, document: Document) -> None:
        self.document, self.digest = document, document.digest()
        if isinstance(document, Fleet):
            self.fleet = serve(document)
        else:
            self.fleet = one_pool(Route(document), plan_scheduling(document))
        self._digests = {pool: pool.route.plan.digest() for pool in self.fleet.pools}

    @property
    def replicas(self) -> int:
        """Replicas of all pools."""
        return self.fleet.replicas

    @property
    def stages(self) -> Iterator[tuple[int, int]]:
        """Every stage, by replica and stage."""
        return ((r, s) for r in range(self.replicas) for s in range(len(self.plan(r).stages)))

    @property
    def models(self) -> tuple[str, ...]:
        """Those of all pools, each once."""
        return tuple(dict.fromkeys(pool.route.plan.model for pool in self.fleet.pools))

    @property
    def kind(self) -> str:
        """What it is in words."""
        return "fleet" if isinstance(self.document, Fleet) else "plan"

    def plan(self, replica: int) -> Plan:
        """The plan of a replica."""
        return self.fleet.route(replica).plan

    def plan_digest(self, replica: int) -> str:
        """The digest of a replica's plan."""
        return self._digests[self.fleet.pool_of[replica]]

    def pool(self, replica: int) -> str:
        """The name of a replica's pool; empty where the plan stands alone."""
        return self.fleet.pool_of[replica].name

    def replica_name(self, replica: int) -> str:
        """How errors and logs name a replica; empty: it is the only one."""
        return replica_name(replica, self.replicas, self.pool(replica))

    def with_scheduling(self, scheduling: Scheduling) -> ServedFleet:
        """A plan alone with other settings. The pools of a fleet have theirs in its file."""
        return self.fleet if isinstance(self.document, Fleet) else one_pool(self.fleet.pools[0].route, scheduling)


def read_deployment(path: Path) -> Deployment:
    """What a file holds: a plan, or a fleet in canonical form. Raises BadInput."""
    if is_fleet_file(path):
        return Deployment(parse_fleet(path.read_bytes(), f"fleet {path}"))
    return Deployment(read_plan_file(path))


def parse_deployment(data: bytes) -> Deployment:
    """What a router says it serves. Raises BadInput."""
    place = "what the router serves"
    return Deployment(parse_fleet(data, place) if is_fleet(data) else parse_plan(data, place))
