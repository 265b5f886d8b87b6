"""The reference engine itself: it keeps the laws, and its two ways to split a gap agree."""

import random
from collections import Counter

from hypothesis import HealthCheck, given, settings

from tests.reference import laws
from tests.reference.attribution import by_stamps, by_timeline
from tests.reference.engine import Engine
from tests.reference.results import Results, results_of
from tests.reference.strategies import Scenario, build, scenarios


def run_with_laws(scenario: Scenario) -> tuple[Engine, Results]:
    """A run with every law checked after every event."""
    engine = Engine(scenario.plan, scenario.scheduling, scenario.workload(), scenario.seed)
    engine.run(laws.check_event)
    results = results_of(engine)
    laws.check_end(engine, results)
    return engine, results


def check_gaps(engine: Engine) -> Counter[str]:
    """Both ways to split agree on every gap; later visits blame nothing on the router. Returns ns by cause."""
    total: Counter[str] = Counter()
    for replica, stages in zip(engine.replicas, engine.stages, strict=True):
        for stage in stages:
            for gap in stage.gaps:
                split = by_timeline(gap, replica.reasons)
                assert split == by_stamps(gap)
                total.update(split)
    return total


@given(scenarios())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_laws_hold_and_gaps_have_one_cause(scenario: Scenario) -> None:
    engine, _ = run_with_laws(scenario)
    check_gaps(engine)


def test_random_scenarios_meet_every_kind_of_event() -> None:
    """Without preemptions, refusals, revisits and every cause the comparison would prove little."""
    met: Counter[str] = Counter()
    for seed in range(100):
        engine, results = run_with_laws(build(random.Random(seed)))
        met.update(check_gaps(engine))
        met.update(record.outcome for record in results.requests)
        met["preemptions"] += sum(record.preemptions for record in results.requests)
        met["revisits"] += sum(record.visits > 1 for record in results.stages)
        for record in results.stages:
            met.update({cause: record.idle_ns[cause] for cause in ("fill", "drain")})
    kinds = "empty starved credit kv_blocked upstream hop fill drain finished refused preemptions revisits"
    assert [kind for kind in kinds.split() if not met[kind]] == []
    assert "gate" not in met


def test_same_inputs_same_records() -> None:
    for seed in range(10):
        assert run_with_laws(build(random.Random(seed)))[1] == run_with_laws(build(random.Random(seed)))[1]
