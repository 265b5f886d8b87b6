"""How much room the answer of a search leaves: the largest load, and what is left when one replica is lost."""

from collections.abc import Callable, Sequence
from fractions import Fraction

import msgspec

from stageline.api.bisecting import largest_load
from stageline.api.trials import Candidate, Trial
from stageline.engine.fleet import Fleet
from stageline.plan.replicas import with_replicas
from stageline.plan.schema import Plan
from stageline.report.pools import RunPools
from stageline.units import parse_ratio

RunAll = Callable[[Sequence[Candidate]], Sequence[Trial]]
STEPS = 1000  # loads are told to a thousandth


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Loads are multiples of the one asked for. None: no load that was tried keeps the objective."""

    kept: float | None  # the largest load that keeps the objective
    missed: float | None  # the next one tried, which misses it
    monotone: bool  # whether no larger load was seen to keep it again
    attainment: float | None  # at the load asked for
    replicas: int


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """The best trial of the other kind, and its room: two pools where the answer is one, or one where it is two."""

    trial: Trial
    room: Room


class Robustness(msgspec.Struct, frozen=True, kw_only=True):
    """Room of the answer, and of the answer without one of its replicas (None: there is none to spare). Of two pools
    the one that loses more by it counts.
    """

    whole: Room
    one_lost: Room | None


def robustness(candidate: Candidate, run: RunAll, width: int) -> Robustness:
    """Runs the answer at other loads, `width` at a time; each is a trial of the whole workload."""
    rooms = [room(msgspec.structs.replace(candidate, plan=plan), run, width) for plan in _without_one(candidate.plan)]
    lost = min(rooms, key=lambda r: (r.kept or 0.0, r.attainment or 0.0), default=None)
    return Robustness(whole=room(candidate, run, width), one_lost=lost)


def _without_one(plan: Plan | Fleet) -> list[Plan | Fleet]:
    """Without one replica; of a fleet once for each pool. Empty where some pool has no other."""
    if isinstance(plan, Plan):
        return [with_replicas(plan, plan.replicas - 1)] if plan.replicas > 1 else []
    if any(pool.plan.replicas == 1 for pool in plan.pools):
        return []
    found: list[Plan | Fleet] = []
    for lost in plan.pools:
        fewer = msgspec.structs.replace(lost, plan=with_replicas(lost.plan, lost.plan.replicas - 1))
        pools = tuple(fewer if pool is lost else pool for pool in plan.pools)
        found.append(msgspec.structs.replace(plan, pools=pools))
    return found


def room(candidate: Candidate, run: RunAll, width: int) -> Room:
    """The largest load at which a candidate keeps the objective."""
    base = parse_ratio(candidate.rate_scale, "--rate-scale")
    attained: list[float | None] = []

    def probe(loads: Sequence[float]) -> list[bool]:
        scales = [base * Fraction(round(load * STEPS), STEPS) for load in loads]
        trials = run([msgspec.structs.replace(candidate, rate_scale=str(scale)) for scale in scales])
        attained.extend(t.attainment for t in trials)
        return [bool(t.slo_met) for t in trials]

    found = largest_load(probe, 1.0, width=width)
    return Room(
        kept=found.kept,
        missed=found.missed,
        monotone=found.monotone,
        attainment=attained[0],
        replicas=RunPools(candidate.plan).replicas,
    )
