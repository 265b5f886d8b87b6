"""The reference engine itself: it keeps the laws, and its two ways to split a gap agree."""

from collections import Counter

from hypothesis import HealthCheck, given, settings

from tests.property.checks import numbers, run_case
from tests.reference.engine import Engine
from tests.reference.results import replica_splits


def ns_by_cause(engine: Engine) -> Counter[str]:
    """Of all gaps."""
    total: Counter[str] = Counter()
    for replica in engine.replicas:
        for split in [split for stage in replica_splits(engine, replica.index) for split in stage]:
            total.update(split)
    return total


@given(numbers)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_laws_hold_and_gaps_have_one_cause(number: int) -> None:
    run_case("laws", "plain", number)


def test_random_scenarios_meet_every_kind_of_event() -> None:
    """Without preemptions, refusals, revisits and every cause the comparison would prove little."""
    met: Counter[str] = Counter()
    for number in range(100):
        engine, results = run_case("laws", "plain", number)
        met.update(ns_by_cause(engine))
        met.update(record.outcome for record in results.requests)
        met["preemptions"] += sum(record.preemptions for record in results.requests)
        met["revisits"] += sum(record.visits > 1 for record in results.stages)
        for record in results.stages:
            met.update({cause: record.idle_ns[cause] for cause in ("fill", "drain")})
    kinds = "empty starved credit kv_blocked upstream uneven chunk hop fill drain finished refused preemptions revisits"
    assert [kind for kind in kinds.split() if not met[kind]] == []
    assert "gate" not in met


def test_same_inputs_same_records() -> None:
    for number in range(10):
        assert run_case("laws", "plain", number)[1] == run_case("laws", "plain", number)[1]
