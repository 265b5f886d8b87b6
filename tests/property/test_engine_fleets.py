"""The product's engine against the plain one on fleets: every record of every random fleet, to the nanosecond."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.checks import CHECKS, numbers, run_case


@pytest.mark.parametrize("kind", CHECKS["fleets"].kinds)
def test_records_are_equal_on_numbered_fleets(kind: str) -> None:
    """KV moves, under pressure too."""
    moved = loaded = preempted = 0
    for number in range(40):
        records = run_case("fleets", kind, number).requests
        moved += sum(r.hand_over is not None and r.hand_over.landed_ns is not None for r in records)
        loaded += sum(r.load is not None for r in records)
        preempted += sum(r.preemptions for r in records)
    assert moved > 50 and preempted > 0 and (loaded > 20) == (kind == "tiers")


@pytest.mark.parametrize("number", [9, 17, 218, 291, 379])
def test_tiers_whose_rule_was_read_in_two_ways(number: int) -> None:
    """Write-through of resident blocks, hand-overs behind a load, counted admissions, ends of writes, gone clients."""
    run_case("fleets", "tiers", number)


@given(numbers)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_records_are_equal(number: int) -> None:
    run_case("fleets", "handover-leaving", number)
