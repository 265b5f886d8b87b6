"""Random small fleets: pools of unlike plans behind one router, and who arrives. A kind and a number name one."""

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stageline.engine.fleet import Fleet, Pool
from stageline.engine.served import ServedFleet, serve
from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Request, Workload
from tests.property.fleets import product_fleet
from tests.reference import fleet_strategies, routing
from tests.reference.strategies import Scenario, numbered, without

POOL_KINDS = ("plain", "plain", "sharing", "windows", "cached-windows", "speculating", "ranks")
STRANGE = "strange"  # a model that nobody serves


@dataclass(frozen=True, slots=True)
class FleetScenario:
    """Everything that decides a run of a fleet. `workload()` is new at every call."""

    fleet: Fleet
    traffic: Scenario  # its requests, users and seed

    @property
    def seed(self) -> int:
        """The run's."""
        return self.traffic.seed

    @property
    def is_open(self) -> bool:
        """Whether requests arrive whatever becomes of others."""
        return not self.traffic.starts_ns

    def served(self) -> ServedFleet:
        """What engines run."""
        return serve(self.fleet)

    def workload(self) -> Workload:
        """A workload that has not been used."""
        return self.traffic.workload()

    def events(self) -> list[Request | Cancellation]:
        """Of an open workload: who arrives and who leaves, in the order of time."""
        return self.traffic.events()


def build_both(rnd: random.Random) -> FleetScenario:
    """Two or three pools with the role `both`, of one model or of two, whose plans and settings have nothing in common.

    What one pool could never hold may fit another. One request in fifteen is for a model that nobody serves.
    """
    traffic, *others = (numbered(rnd.choice(POOL_KINDS), rnd.randrange(2**40)) for _ in range(rnd.randint(2, 3)))
    models = rnd.choice([("only",), ("a", "b")])
    pools = tuple(_pool(rnd, i, of, models[i % len(models)]) for i, of in enumerate([traffic, *others]))
    cached = any(pool.scheduling.prefix_cache for pool in pools)
    balance = rnd.choice([*routing.CHOICES] if cached else without(routing.CHOICES, routing.NEED_CACHE))
    front_end_ns = rnd.choice([0, 0, 1, rnd.randint(1, 600)])
    fleet = Fleet(pools=pools, balance=balance, front_end_ns=front_end_ns)
    return FleetScenario(fleet, _asking(rnd, traffic, models))


def build_leaving(rnd: random.Random) -> FleetScenario:
    """As `build_both`, with clients who leave at any time after their arrival."""
    scenario = build_both(rnd)
    if not scenario.is_open:
        return scenario
    leaving = tuple(
        Cancellation(index=r.index, at_ns=r.arrival_ns + rnd.choice([0, rnd.randint(1, 200), rnd.randint(1, 4000)]))
        for r in scenario.traffic.users[0]
        if rnd.randint(0, 1)
    )
    return dataclasses.replace(scenario, traffic=dataclasses.replace(scenario.traffic, leaving=leaving))


def _pool(rnd: random.Random, index: int, of: Scenario, model: str) -> Pool:
    """The plan and the settings of a scenario; routing policy and front end are the router's."""
    plan = msgspec.structs.replace(of.plan, model=model, replicas=rnd.choice([1, 1, 2]))
    return Pool(name=f"pool-{index}", plan=plan, scheduling=_of_a_pool(of.scheduling))


def _asking(rnd: random.Random, traffic: Scenario, models: tuple[str, ...]) -> Scenario:
    """The same requests, each for a model; where there is only one it may stay without a name."""
    names = [*models, *models, ""] if len(models) == 1 else models

    def asked() -> str:
        return STRANGE if rnd.randrange(15) == 0 else rnd.choice(names)

    users = tuple(tuple(msgspec.structs.replace(r, model=asked()) for r in user) for user in traffic.users)
    return dataclasses.replace(traffic, users=users)


def _of_twin(scenario: fleet_strategies.FleetScenario) -> FleetScenario:
    """A scenario of the reference, as a fleet file has it."""
    fleet = product_fleet(scenario.fleet)
    pools = tuple(msgspec.structs.replace(p, scheduling=_of_a_pool(p.scheduling)) for p in fleet.pools)
    users = tuple(
        tuple(msgspec.structs.replace(r, model=scenario.models.get(r.index, "")) for r in user)
        for user in scenario.like.users
    )
    cached = any(pool.scheduling.prefix_cache for pool in pools)
    balance = fleet.balance if cached or fleet.balance not in routing.NEED_CACHE else "round-robin"
    fleet = msgspec.structs.replace(fleet, pools=pools, balance=balance)
    return FleetScenario(fleet, dataclasses.replace(scenario.like, users=users))


def _of_a_pool(scheduling: Scheduling) -> Scheduling:
    """Without the settings of the router, which all pools share."""
    plain = Scheduling()
    return msgspec.structs.replace(scheduling, balance=plain.balance, front_end_ns=plain.front_end_ns)


BOTH_KINDS: dict[str, Callable[[random.Random], FleetScenario]] = {"both": build_both, "both-leaving": build_leaving}
FLEET_KINDS = (*BOTH_KINDS, *fleet_strategies.KINDS)


def fleet_numbered(kind: str, number: int) -> FleetScenario:
    """The scenario of this name: always the same one, until this module or those of its pools change."""
    if kind in BOTH_KINDS:
        return BOTH_KINDS[kind](random.Random(number))
    return _of_twin(fleet_strategies.numbered(kind, number))
