"""The product's engine against the plain one: every record of every random scenario, to the nanosecond."""

import dataclasses
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from stageline.engine.policies.queueing import QueueState, StateAwarePolicy
from stageline.engine.types import Request, RequestRecord
from tests.property.checks import EVERY_KIND, numbers, run_case, run_product, run_reference
from tests.reference.strategies import Scenario, numbered

# Scenarios that hypothesis looks for.
FOUND = {
    "plain": 150, "sharing": 100, "windows": 100, "cached-windows": 50, "speculating": 100, "ranks": 100,
    "front-end": 100,
}  # fmt: skip


@pytest.mark.parametrize("kind", FOUND)
def test_records_are_equal(kind: str) -> None:
    @settings(max_examples=FOUND[kind], suppress_health_check=[HealthCheck.too_slow])
    @given(numbers)
    def on(number: int) -> None:
        run_case("reference", kind, number)

    on()


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_records_are_equal_on_numbered_scenarios(first: int) -> None:
    for number in range(first, first + 100):
        run_case("reference", "plain", number)


def test_virtual_engines_do_not_look_at_their_work_when_something_happens_at_another_replica() -> None:
    """One engine preempts another's sequence after that one's turn, and the next event is another replica's."""
    agreed = run_case("reference", "plain", 45205)
    assert agreed.engine.scheduling.batching == "virtual-engines" and len(agreed.engine.replicas) > 1
    assert sum(record.preemptions for record in agreed.wanted.requests) > 0


def test_two_sequences_do_not_preempt_each_other_for_ever() -> None:
    """Steps that follow each other at one instant grow one and leave the other idle, in turn."""
    agreed = run_case("reference", "front-end", 300114)
    assert agreed.engine.scheduling.batching == "global-cap"
    assert sum(record.preemptions for record in agreed.wanted.requests) > 0


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_records_are_equal_with_a_prefix_cache_on_numbered_scenarios(first: int) -> None:
    met: Counter[str] = Counter()
    for number in range(first, first + 100):
        for cache in run_case("reference", "sharing", number).run.totals.prefix:
            met.update(hits=cache.hit_blocks, evictions=cache.evictions)
    assert met["hits"] > 200 and met["evictions"] > 200


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_records_are_equal_with_speculation_on_numbered_scenarios(first: int) -> None:
    for number in range(first, first + 100):
        run_case("reference", "speculating", number)


def test_records_are_equal_with_sliding_windows_on_numbered_scenarios() -> None:
    """Windows bind in some: whole contexts differ."""
    preempted = changed = 0
    for number in range(100):
        records = run_case("reference", "windows", number).wanted.requests
        preempted += sum(record.preemptions for record in records)
        changed += records != run_reference(without_windows(numbered("windows", number)))[1].requests
    assert preempted > 20 and changed > 20


def test_records_are_equal_with_cached_windows_on_numbered_scenarios() -> None:
    """There are hits, and windows cut some of them: a plan without windows gives others."""
    hits = cut = preempted = 0
    for number in range(50):
        agreed = run_case("reference", "cached-windows", number)
        without = run_product(without_windows(numbered("cached-windows", number)), paranoid=False)
        found, whole = (sum(c.hit_blocks for c in run.totals.prefix) for run in (agreed.run, without))
        hits, cut = hits + found, cut + (found < whole)
        preempted += sum(record.preemptions for record in agreed.wanted.requests)
    assert hits > 50 and cut > 5 and preempted > 5


def without_windows(scenario: Scenario) -> Scenario:
    """The same with ledgers that count whole contexts in every layer."""
    stages = []
    for stage in scenario.plan.stages:
        whole = stage.kv_block_bytes + sum(w.block_bytes for w in stage.windows)
        stages.append(msgspec.structs.replace(stage, kv_windows=msgspec.UNSET, kv_block_bytes=whole))
    return dataclasses.replace(scenario, plan=msgspec.structs.replace(scenario.plan, stages=tuple(stages)))


def test_records_are_equal_with_data_parallel_ranks_on_numbered_scenarios() -> None:
    """The budget of one rank binds in some: a plan without ranks gives other records."""
    changed = 0
    for number in range(100):
        records = run_case("reference", "ranks", number).wanted.requests
        changed += records != run_reference(without_ranks(numbered("ranks", number)))[1].requests
    assert changed > 20


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_records_are_equal_behind_a_front_end_on_numbered_scenarios(first: int) -> None:
    """The window begins at the router: nobody idles for what is still in the front end."""
    for number in range(first, first + 100):
        agreed = run_case("reference", "front-end", number)
        delay_ns = agreed.engine.scheduling.front_end_ns
        assert agreed.wanted.window_start_ns == min(r.arrival_ns for r in agreed.wanted.requests) + delay_ns


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_front_ends_serve_closed_loops_too(first: int) -> None:
    """What is drawn depends on the policies that there are, so this is not asked where a user has added one."""
    drawn = [numbered("front-end", number).workload() for number in range(first, first + 100)]
    assert sum(workload.reactive for workload in drawn) > 20


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_front_end_is_a_later_arrival(kind: str) -> None:
    for number in range(40):
        run_case("front-end", kind, number)


def without_ranks(scenario: Scenario) -> Scenario:
    """The same with one budget for the whole replica."""
    return dataclasses.replace(scenario, plan=msgspec.structs.replace(scenario.plan, serving=msgspec.UNSET))


class LongestPrefixMatch(StateAwarePolicy):
    """SGLang's lpm as a user writes it, for `--queueing package.module:Class`."""

    needs_prefix_cache = True

    def key(self, request: Request, state: QueueState) -> int:
        """The most cached tokens first."""
        return -state.cached_tokens(request)


def test_a_users_longest_prefix_match_is_the_built_in_one_and_not_arrival_order() -> None:
    differs = 0
    for number in range(200):
        scenario = numbered("sharing", number)
        if scenario.scheduling.queueing == "longest-prefix":
            built_in, users, fcfs = (
                records_of(scenario, name) for name in ("longest-prefix", f"{__name__}:LongestPrefixMatch", "fcfs")
            )
            assert users == built_in, f"scenario {number}"
            differs += built_in != fcfs
    assert differs > 20


def records_of(scenario: Scenario, queueing: str) -> list[RequestRecord]:
    """The records of a scenario under another queueing policy."""
    scheduling = msgspec.structs.replace(scenario.scheduling, queueing=queueing)
    return run_product(dataclasses.replace(scenario, scheduling=scheduling), paranoid=False).requests
