"""The product's engine against the plain one: every record of every random scenario, to the nanosecond."""

import dataclasses
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from stageline.engine import inprocess
from stageline.engine.policies.queueing import QueueState, StateAwarePolicy
from stageline.engine.types import Request, RequestRecord, RunTotals, SpeculationStats
from tests.reference.attribution import by_timeline
from tests.reference.engine import Engine
from tests.reference.results import Results, results_of
from tests.reference.stage import Service
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

Place = tuple[int, int]  # replica, stage


@dataclass
class Collector:
    """An observer that keeps everything."""

    requests: list[RequestRecord] = field(default_factory=list)
    tokens_ns: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    since_ns: dict[int, list[int | None]] = field(default_factory=lambda: defaultdict(list))

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See `Observer`."""
        self.tokens_ns[index].append(now_ns)
        self.since_ns[index].append(since_ns)

    def request(self, record: RequestRecord) -> None:
        """See `Observer`."""
        self.requests.append(record)


@dataclass
class Stages:
    """A stage observer that keeps everything but the fill, which the records tell."""

    services: dict[Place, list[Service]] = field(default_factory=lambda: defaultdict(list))
    gaps: dict[Place, list[tuple[int, dict[str, int]]]] = field(default_factory=lambda: defaultdict(list))

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None:
        """See `StageObserver`."""
        self.services[replica, stage].append(Service(visit, number, arrival_ns, start_ns, end_ns))

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """See `StageObserver`."""
        split = {cause: ns for cause, ns in idle_ns.items() if ns and cause != "fill"}
        if split:
            self.gaps[replica, stage].append((start_ns, split))

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """See `StageObserver`."""


def run_reference(scenario: Scenario) -> tuple[Engine, Results]:
    """The scenario on the plain engine."""
    engine = Engine(scenario.plan, scenario.scheduling, scenario.workload(), scenario.seed)
    engine.run()
    return engine, results_of(engine)


def compare_requests(wanted: Results, seen: Collector, totals: RunTotals) -> None:
    """All records, and the times of all tokens."""
    assert sorted(seen.requests, key=lambda record: record.index) == wanted.requests
    assert list(totals.stages) == wanted.stages
    assert (totals.window_start_ns, totals.window_end_ns) == (wanted.window_start_ns, wanted.window_end_ns)
    assert seen.tokens_ns == wanted.tokens_ns
    assert seen.since_ns == {index: [None, *times[:-1]] for index, times in wanted.tokens_ns.items()}


def compare_stages(engine: Engine, seen: Stages) -> None:
    """Every service and every gap of every stage."""
    for replica, stages in zip(engine.replicas, engine.stages, strict=True):
        for stage in stages:
            place = (replica.index, stage.stage)
            assert seen.services[place] == stage.log
            gaps = [(gap.start_ns, by_timeline(gap, replica.reasons)) for gap in stage.gaps]
            assert seen.gaps[place] == gaps


def compare_speculation(engine: Engine, totals: RunTotals) -> None:
    """What came of the drafts, by replica; nothing where none were asked for."""
    wanted = [SpeculationStats() for _ in engine.replicas] if engine.scheduling.speculate else []
    for s in engine.sequences if wanted else ():
        wanted[s.replica] += SpeculationStats(
            steps=s.steps, drafted_tokens=s.drafted_tokens, accepted_tokens=s.accepted_tokens
        )
    assert list(totals.speculation) == wanted


def compare(scenario: Scenario) -> None:
    """Once as users run it, once watched and with the laws checked: neither may change anything."""
    engine, wanted = run_reference(scenario)
    plan, scheduling, seed = scenario.plan, scenario.scheduling, scenario.seed
    seen = Collector()
    compare_requests(wanted, seen, inprocess.run(plan, scheduling, scenario.workload(), seed=seed, observer=seen))
    seen, stages = Collector(), Stages()
    totals = inprocess.run(
        plan, scheduling, scenario.workload(), seed=seed, observer=seen, stage_observer=stages, paranoid=True
    )
    compare_requests(wanted, seen, totals)
    compare_stages(engine, stages)
    compare_speculation(engine, totals)


def compare_sharing(scenario: Scenario) -> tuple[int, int]:
    """With a prefix cache; blocks hit and blocks evicted."""
    compare(scenario)
    seen = Collector()
    totals = inprocess.run(scenario.plan, scenario.scheduling, scenario.workload(), seed=scenario.seed, observer=seen)
    assert len(totals.prefix) == scenario.plan.replicas
    assert sum(p.hit_tokens for p in totals.prefix) == sum(r.cached_tokens or 0 for r in seen.requests)
    return sum(p.hit_blocks for p in totals.prefix), sum(p.evictions for p in totals.prefix)


@given(sharing_scenarios())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_records_are_equal_with_a_prefix_cache(scenario: Scenario) -> None:
    compare_sharing(scenario)


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_records_are_equal_with_a_prefix_cache_on_numbered_scenarios(first: int) -> None:
    """`compare_sharing(build_sharing(random.Random(n)))` replays scenario n."""
    hits = evictions = 0
    for number in range(first, first + 100):
        try:
            found, gone = compare_sharing(build_sharing(random.Random(number)))
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise
        hits += found
        evictions += gone
    assert hits > 200 and evictions > 200


class LongestPrefixMatch(StateAwarePolicy):
    """SGLang's lpm as a user writes it, for `--queueing package.module:Class`."""

    needs_prefix_cache = True

    def key(self, request: Request, state: QueueState) -> int:
        """The most cached tokens first."""
        return -state.cached_tokens(request)


def test_a_users_longest_prefix_match_is_the_built_in_one_and_not_arrival_order() -> None:
    others = 0
    for number in range(200):
        scenario = build_sharing(random.Random(number))
        if scenario.scheduling.queueing == "longest-prefix":
            built_in, users, fcfs = (
                records_of(scenario, name) for name in ("longest-prefix", f"{__name__}:LongestPrefixMatch", "fcfs")
            )
            assert users == built_in, f"scenario {number}"
            others += built_in != fcfs
    assert others > 20


def records_of(scenario: Scenario, queueing: str) -> list[RequestRecord]:
    """What the product's engine says with another queueing policy."""
    seen, scheduling = Collector(), msgspec.structs.replace(scenario.scheduling, queueing=queueing)
    inprocess.run(scenario.plan, scheduling, scenario.workload(), seed=scenario.seed, observer=seen)
    return seen.requests


@given(window_scenarios())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_records_are_equal_with_sliding_windows(scenario: Scenario) -> None:
    compare(scenario)


def test_records_are_equal_with_sliding_windows_on_numbered_scenarios() -> None:
    """`compare(build_windows(random.Random(n)))` replays scenario n. Windows bind in some: whole contexts differ."""
    preempted = changed = 0
    for number in range(100):
        scenario = build_windows(random.Random(number))
        try:
            compare(scenario)
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise
        records = run_reference(scenario)[1].requests
        preempted += sum(record.preemptions for record in records)
        changed += records != run_reference(without_windows(scenario))[1].requests
    assert preempted > 20 and changed > 20


def without_windows(scenario: Scenario) -> Scenario:
    """The same with ledgers that count whole contexts in every layer."""
    stages = []
    for stage in scenario.plan.stages:
        whole = stage.kv_block_bytes + sum(w.block_bytes for w in stage.windows)
        stages.append(msgspec.structs.replace(stage, kv_windows=msgspec.UNSET, kv_block_bytes=whole))
    return dataclasses.replace(scenario, plan=msgspec.structs.replace(scenario.plan, stages=tuple(stages)))


@given(scenarios())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_records_are_equal(scenario: Scenario) -> None:
    compare(scenario)


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_records_are_equal_on_numbered_scenarios(first: int) -> None:
    """`compare(build(random.Random(n)))` replays scenario n."""
    for number in range(first, first + 100):
        try:
            compare(build(random.Random(number)))
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise


@given(speculating_scenarios())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_records_are_equal_with_speculation(scenario: Scenario) -> None:
    compare(scenario)


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_records_are_equal_with_speculation_on_numbered_scenarios(first: int) -> None:
    """`compare(build_speculating(random.Random(n)))` replays scenario n."""
    for number in range(first, first + 100):
        try:
            compare(build_speculating(random.Random(number)))
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise
