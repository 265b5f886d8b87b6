"""The reference engine on fleets: it keeps the laws, and one pool changes nothing."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.checks import EVERY_KIND, numbers, run_case, run_fleet_scenario
from tests.reference.fleet import FleetEngine
from tests.reference.states import MOVES, State


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_one_pool_changes_nothing(kind: str) -> None:
    for number in range(20):
        run_case("one-pool", kind, number)


@given(numbers)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
def test_laws_hold_on_fleets(number: int) -> None:
    run_case("fleet-laws", "handover-leaving", number)


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
    """Without them the comparison would prove little."""
    met: Counter[tuple[State, str]] = Counter()
    transfer_ns = 0
    for kind, number in product(("handover-leaving", "handover-crowded"), range(100)):
        engine, results = run_fleet_scenario(kind, number)
        met.update(moves(engine))
        transfer_ns += sum(stage.idle_ns.get("transfer", 0) for stage in results.stages)
    wanted = {(state, event) for state, events in MOVES.items() for event in events if "load" not in event}
    wanted = {move for move in wanted if move[0] != State.LOADING}
    assert wanted - set(met) == set()
    assert transfer_ns > 0
