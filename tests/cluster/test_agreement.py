"""The cluster against the in-process engine: the same records for every random scenario, over real gRPC."""

from itertools import islice

import pytest
from hypothesis import HealthCheck, given, settings

from stageline.testing import run_plan
from tests.property.checks import numbers, run_case
from tests.property.fleet_scenarios import fleet_numbered
from tests.reference.strategies import Scenario, numbered

# Scenarios that hypothesis looks for.
FOUND = {
    "plain": 200, "sharing": 40, "windows": 30, "cached-windows": 30, "speculating": 40, "ranks": 20, "front-end": 40,
}  # fmt: skip
COUNTS = {"plain": 8, "sharing": 6, "windows": 4, "cached-windows": 5, "speculating": 8, "ranks": 3, "front-end": 5}
NUMBERED = [(kind, number) for kind, count in COUNTS.items() for number in range(count)]


def is_open(kind: str, number: int) -> bool:
    """A closed loop takes place in one process."""
    return not numbered(kind, number).starts_ns


@pytest.mark.parametrize("kind", FOUND)
def test_records_are_equal(kind: str) -> None:
    """What every replica's cache did and what came of its drafts among them."""

    @settings(max_examples=FOUND[kind], suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    @given(numbers.filter(lambda number: is_open(kind, number)))
    def on(number: int) -> None:
        run_case("cluster", kind, number)

    on()


@pytest.mark.parametrize(("kind", "number"), NUMBERED)
def test_records_are_equal_on_numbered_scenarios(kind: str, number: int) -> None:
    run_case("cluster", kind, number)


FLEETS = [
    ("both", 3), ("both", 6), ("both-leaving", 4), ("handover", 6), ("handover-leaving", 3), ("handover-crowded", 2),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "number"), FLEETS)
def test_records_of_a_fleet_are_equal(kind: str, number: int) -> None:
    assert fleet_numbered(kind, number).is_open, "a closed loop takes place in one process"
    run_case("fleet-cluster", kind, number)


def test_a_cluster_pressed_for_kv_preempts_and_drafts() -> None:
    """Random scenarios meet this too; here it is certain."""
    pressed = (number for number in range(1000) if is_pressed(numbered("speculating", number)))
    for number in islice(pressed, 3):
        run_case("cluster", "speculating", number)


def is_pressed(scenario: Scenario) -> bool:
    """Drafts are rejected and sequences preempted."""
    if scenario.starts_ns or scenario.scheduling.kv != "grow":
        return False
    run = run_plan(scenario.plan, scenario.workload(), scenario.scheduling, seed=scenario.seed, paranoid=False)
    rejected = sum(s.drafted_tokens - s.accepted_tokens for s in run.totals.speculation)
    return rejected > 5 and any(record.preemptions for record in run.requests)
