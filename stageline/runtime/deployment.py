"""What servers serve: a plan alone, or a fleet of pools (rule 10)."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from stageline.engine.fleet import FLEET_FORMAT, Fleet
from stageline.engine.route import Route
from stageline.engine.served import ServedFleet, one_pool, serve
from stageline.engine.settings import Scheduling, plan_scheduling
from stageline.errors import BadInput
from stageline.plan.check import check_plan
from stageline.plan.schema import Plan
from stageline.runtime.names import replica_name
from stageline.runtime.plans import read_plan_file

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
    """What a file of canonical JSON holds. Raises BadInput."""
    try:
        data = path.read_bytes() if path.is_file() else b""
    except OSError:
        data = b""
    # What can't be read is said as of a plan.
    return Deployment(_parse_fleet(data, f"fleet {path}") if _is_fleet(data) else read_plan_file(path))


def parse_deployment(data: bytes) -> Deployment:
    """What a router says it serves."""
    if _is_fleet(data):
        return Deployment(msgspec.json.decode(data, type=Fleet))
    return Deployment(msgspec.json.decode(data, type=Plan))


class _Head(msgspec.Struct):
    format: str = ""


def _is_fleet(data: bytes) -> bool:
    try:
        return msgspec.json.decode(data, type=_Head).format == FLEET_FORMAT
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _parse_fleet(data: bytes, place: str) -> Fleet:
    try:
        fleet = msgspec.json.decode(data, type=Fleet)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(place, None, f"not a fleet: {error}") from None
    for pool in fleet.pools:
        check_plan(pool.plan, f"{place}, pool {pool.name}")
    return fleet
