"""The cluster against the in-process engine: the same records for every random scenario, over real gRPC."""

import asyncio
import random

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stageline.engine import inprocess
from tests.cluster.servers import Seen, cluster
from tests.reference.strategies import (
    Scenario,
    build,
    build_sharing,
    build_speculating,
    build_windows,
    scenarios,
    sharing_scenarios,
    speculating_scenarios,
    window_scenarios,
)
from tests.reference.workloads import ListWorkload


async def compare(scenario: Scenario, window: int, mode: str) -> None:
    """All records and the times of all tokens."""
    requests = sorted(scenario.users[0], key=lambda r: (r.arrival_ns, r.index))
    wanted = Seen()
    totals = inprocess.run(
        scenario.plan, scenario.scheduling, ListWorkload(requests), seed=scenario.seed, observer=wanted
    )
    async with asyncio.timeout(60), cluster(scenario.plan, window=window) as servers:
        got, seen, _ = await servers.run(requests, scenario.scheduling, seed=scenario.seed, payload=mode)
    assert got == totals
    assert sorted(seen.requests, key=lambda r: r.index) == sorted(wanted.requests, key=lambda r: r.index)
    assert sorted(seen.tokens) == sorted(wanted.tokens)


def run(scenario: Scenario, window: int, mode: str) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(compare(scenario, window, mode))


@given(
    scenarios().filter(lambda scenario: not scenario.starts_ns),
    st.integers(1, 8),
    st.sampled_from(["size", "capped", "full"]),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_records_are_equal(scenario: Scenario, window: int, mode: str) -> None:
    run(scenario, window, mode)


@pytest.mark.parametrize("number", range(8))
def test_records_are_equal_on_numbered_scenarios(number: int) -> None:
    """`build(random.Random(n))` replays scenario n."""
    scenario = build(random.Random(number))
    if not scenario.starts_ns:
        run(scenario, 1 + number, "size")


@given(sharing_scenarios().filter(lambda scenario: not scenario.starts_ns), st.integers(1, 8))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_records_are_equal_with_a_prefix_cache(scenario: Scenario, window: int) -> None:
    """Cached tokens, and what every replica's cache did, among them."""
    run(scenario, window, "size")


@pytest.mark.parametrize("number", range(6))
def test_records_are_equal_with_a_prefix_cache_on_numbered_scenarios(number: int) -> None:
    """`build_sharing(random.Random(n))` replays scenario n."""
    scenario = build_sharing(random.Random(number))
    if not scenario.starts_ns:
        run(scenario, 1 + number, "size")


@given(window_scenarios().filter(lambda scenario: not scenario.starts_ns), st.integers(1, 8))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_records_are_equal_with_sliding_windows(scenario: Scenario, window: int) -> None:
    run(scenario, window, "size")


@pytest.mark.parametrize("number", range(4))
def test_records_are_equal_with_sliding_windows_on_numbered_scenarios(number: int) -> None:
    """`build_windows(random.Random(n))` replays scenario n."""
    scenario = build_windows(random.Random(number))
    if not scenario.starts_ns:
        run(scenario, 1 + number, "size")


@given(speculating_scenarios().filter(lambda scenario: not scenario.starts_ns), st.integers(1, 8))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_records_are_equal_with_speculation(scenario: Scenario, window: int) -> None:
    """What came of every replica's drafts among them."""
    run(scenario, window, "size")


@pytest.mark.parametrize("number", range(8))
def test_records_are_equal_with_speculation_on_numbered_scenarios(number: int) -> None:
    """`build_speculating(random.Random(n))` replays scenario n."""
    scenario = build_speculating(random.Random(number))
    if not scenario.starts_ns:
        run(scenario, 1 + number, "size")


def test_a_cluster_pressed_for_kv_preempts_and_drafts() -> None:
    """Random scenarios meet this too; here it is certain."""
    numbers = (n for n in range(1000) if _pressed(build_speculating(random.Random(n))))
    for _ in range(3):
        run(build_speculating(random.Random(next(numbers))), 2, "size")


def _pressed(scenario: Scenario) -> bool:
    if scenario.starts_ns or scenario.scheduling.kv != "grow":
        return False
    seen = Seen()
    requests = sorted(scenario.users[0], key=lambda r: (r.arrival_ns, r.index))
    totals = inprocess.run(
        scenario.plan, scenario.scheduling, ListWorkload(requests), seed=scenario.seed, observer=seen
    )
    drafts = sum(s.drafted_tokens - s.accepted_tokens for s in totals.speculation)
    return drafts > 5 and any(r.preemptions for r in seen.requests)
