"""Observers of the test kit see what an engine does."""

from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import Observer, StageObserver
from stageline.testing import DigestObserver, Ignoring, ListWorkload, request, run_plan, uniform_plan
from tests.property.digests import digest_of, kept

REQUESTS = [request(0, 0, output_tokens=2), request(1, 50, output_tokens=1)]
PLAN = uniform_plan(2, service_ns=100, kv_block_bytes=1, microbatch=1, credits=2)


def test_a_recorder_keeps_everything() -> None:
    seen = run_plan(PLAN, REQUESTS).seen
    assert seen.tokens == [(0, 200, None), (1, 300, None), (0, 400, 200)]
    assert seen.tokens_ns == {0: [200, 400], 1: [300]}
    assert [record.index for record in seen.requests] == [1, 0]
    assert [record.index for record in seen.by_index()] == [0, 1]
    assert seen.microbatches == {(0, 0): (0,), (0, 1): (1,), (0, 2): (0,)}
    assert [(s.stage, s.number, s.start_ns, s.end_ns) for s in seen.services if s.stage == 1] == [
        (1, 0, 100, 200), (1, 1, 200, 300), (1, 2, 300, 400),
    ]  # fmt: skip
    late = run_plan(PLAN, [*REQUESTS, request(2, 1000)]).seen
    assert late.gaps[0].idle_ns == {"starved": 100, "empty": 600}
    assert {ledger.used_bytes for ledger in seen.ledgers} >= {1, 2}


def test_who_ignores_everything_may_watch_everything() -> None:
    watching: Observer = Ignoring()
    stages: StageObserver = Ignoring()
    inprocess.run(
        PLAN, Scheduling(), ListWorkload(REQUESTS), seed=0, observer=watching, members=Ignoring(), stage_observer=stages
    )


def test_the_digest_is_that_of_a_run_directory() -> None:
    first = next(kept())
    observer, scenario = DigestObserver(), first.scenario()
    totals = inprocess.run(
        scenario.plan, scenario.scheduling, scenario.workload(), seed=scenario.seed, observer=observer
    )
    assert observer.finish(totals.stages) == digest_of(scenario) == first.digest
