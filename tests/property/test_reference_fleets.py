"""The reference engine on fleets: it keeps the laws, and one pool changes nothing."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.checks import EVERY_KIND, numbers, run_case
from tests.reference.fleet import FleetEngine
from tests.reference.states import MOVES, State

MEETING = {"handover-leaving": (72, 91), "handover-crowded": (5, 25), "tiers": (55, 76, 81, 92)}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_one_pool_changes_nothing(kind: str) -> None:
    for number in range(8):
        run_case("one-pool", kind, number)


@given(numbers)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
def test_laws_hold_on_fleets(number: int) -> None:
    run_case("fleet-laws", "handover-leaving", number)


@given(numbers)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
def test_laws_hold_on_fleets_with_tiers(number: int) -> None:
    run_case("fleet-laws", "tiers", number)


def moves(engine: FleetEngine) -> Counter[tuple[State, str]]:
    """How often a request in this state met this event."""
    met: Counter[tuple[State, str]] = Counter()
    for journey in engine.book.journeys.values():
        before = State.NEW
        for _, event, after, _ in journey.story.entries:
            met[before, event] += 1
            before = after
    return met


def test_random_fleets_meet_every_move_of_every_state() -> None:
    """Without them the comparison would prove little. These few meet all; others do once the generator has changed."""
    met: Counter[tuple[State, str]] = Counter()
    transfer_ns = 0
    for kind, numbers_met in MEETING.items():
        for number in numbers_met:
            engine, results = run_case("fleet-laws", kind, number)
            met.update(moves(engine))
            transfer_ns += sum(stage.idle_ns.get("transfer", 0) for stage in results.stages)
    wanted = {(state, event) for state, events in MOVES.items() for event in events}
    assert wanted - set(met) == set()
    assert transfer_ns > 0
