"""How much room the answer of a search leaves: the largest load, and what is left when one replica is lost."""

from collections.abc import Callable, Sequence
from fractions import Fraction

import msgspec

from stageline.api.bisecting import largest_load
from stageline.api.trials import Candidate, Trial
from stageline.plan.replicas import with_replicas
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


class Robustness(msgspec.Struct, frozen=True, kw_only=True):
    """Room of the answer, and of the answer without one of its replicas (None: it has one only)."""

    whole: Room
    one_lost: Room | None


def robustness(candidate: Candidate, run: RunAll, width: int) -> Robustness:
    """Runs the answer at other loads, `width` at a time; each is a trial of the whole workload."""
    lost = None
    if candidate.plan.replicas > 1:
        plan = with_replicas(candidate.plan, candidate.plan.replicas - 1)
        lost = _room(msgspec.structs.replace(candidate, plan=plan), run, width)
    return Robustness(whole=_room(candidate, run, width), one_lost=lost)


def _room(candidate: Candidate, run: RunAll, width: int) -> Room:
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
        replicas=candidate.plan.replicas,
    )
