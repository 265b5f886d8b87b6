"""The vectorised pipeline against the event heap: the same records, whatever the size of the batches."""

import random

import pytest

from stageline.engine import inprocess, vector_pipeline
from stageline.engine.types import StageRecord
from tests.property.test_engine_against_reference import Collector
from tests.reference.strategies import Scenario, build, build_sharing, build_speculating

SCENARIOS = 300


class Ignored:
    """A stage observer: its presence alone makes the engine take the heap."""

    def served(self, *service: int) -> None:
        """See `StageObserver`."""

    def gap(self, *gap: object) -> None:
        """See `StageObserver`."""

    def kv(self, *used: int) -> None:
        """See `StageObserver`."""


def chains() -> list[tuple[int, Scenario]]:
    """Numbered scenarios whose route visits every stage once."""
    numbered = [(number, build(random.Random(number))) for number in range(10_000, 10_000 + SCENARIOS)]
    numbered += [(number, build_sharing(random.Random(number))) for number in range(20_000, 20_000 + SCENARIOS // 3)]
    numbered += [(n, build_speculating(random.Random(n))) for n in range(30_000, 30_000 + SCENARIOS // 3)]
    return [(n, s) for n, s in numbered if len({v.stage for v in s.plan.visits}) == len(s.plan.visits)]


def results(scenario: Scenario, observer: Ignored | None) -> tuple[tuple[StageRecord, ...], Collector]:
    """Stage records, and everything that the observer saw."""
    seen = Collector()
    totals = inprocess.run(
        scenario.plan,
        scenario.scheduling,
        scenario.workload(),
        seed=scenario.seed,
        observer=seen,
        stage_observer=observer,
    )
    return totals.stages, seen


@pytest.mark.parametrize("small_batch", [1, 3, 1000])
def test_vectors_equal_the_heap(small_batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`build(random.Random(n))`, from 20,000 up `build_sharing` and from 30,000 `build_speculating`, replays n."""
    monkeypatch.setattr(vector_pipeline, "SMALL_BATCH", small_batch)
    scenarios = chains()
    assert len(scenarios) > SCENARIOS / 10
    for number, scenario in scenarios:
        stages, seen = results(scenario, None)
        heap_stages, heap_seen = results(scenario, Ignored())
        assert stages == heap_stages, f"scenario {number}"
        assert (seen.requests, seen.tokens_ns) == (heap_seen.requests, heap_seen.tokens_ns), f"scenario {number}"
