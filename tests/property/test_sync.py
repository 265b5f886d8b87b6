"""Conservative synchronisation: whatever the order of delivery and the window, the in-process engine's records."""

import random

import pytest

from stageline.engine import inprocess
from tests.property.test_engine_against_reference import Collector
from tests.reference.delivery import Session
from tests.reference.strategies import Scenario, build, build_sharing, build_speculating


def compare(scenario: Scenario, window_frames: int) -> Session:
    """One scenario, delivered twice; returns the last session."""
    seen = Collector()
    totals = inprocess.run(
        scenario.plan, scenario.scheduling, scenario.workload(), seed=scenario.seed, observer=seen, paranoid=True
    )
    for delivery in range(2):
        others = Collector()
        session = Session(scenario, others, window_frames=window_frames, delivery=delivery)
        assert tuple(session.run()) == totals.stages
        assert sorted(others.requests, key=lambda r: r.index) == sorted(seen.requests, key=lambda r: r.index)
        assert others.tokens_ns == seen.tokens_ns
        assert all(n.done and not n.stage.ledger.used_bytes for row in session.stages for n in row), "L2"
    return session


@pytest.mark.parametrize("window_frames", [0, 1, 2, 5])
def test_any_delivery_gives_the_same_records(window_frames: int) -> None:
    """`build(random.Random(n))` replays scenario n."""
    met = []
    for number in range(20_000 + 1000 * window_frames, 20_060 + 1000 * window_frames):
        try:
            met.append(compare(build(random.Random(number)), window_frames))
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise
    assert any(s.promise_frames for s in met), "no scenario needed a promise"
    assert any(s.most_in_a_frame > 1 for s in met), "no frame carried two microbatches"


@pytest.mark.parametrize("window_frames", [1, 3])
def test_any_delivery_gives_the_same_records_with_a_prefix_cache(window_frames: int) -> None:
    """`build_sharing(random.Random(n))` replays scenario n."""
    hits = 0
    for number in range(30_000 + 1000 * window_frames, 30_060 + 1000 * window_frames):
        try:
            session = compare(build_sharing(random.Random(number)), window_frames)
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise
        hits += sum(r.cache.stats().hit_blocks for r in session.router.replicas if r.cache is not None)
    assert hits > 50


@pytest.mark.parametrize("window_frames", [1, 3])
def test_any_delivery_gives_the_same_records_with_speculation(window_frames: int) -> None:
    """`build_speculating(random.Random(n))` replays scenario n."""
    kept = 0
    for number in range(40_000 + 1000 * window_frames, 40_060 + 1000 * window_frames):
        try:
            session = compare(build_speculating(random.Random(number)), window_frames)
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise
        speculations = [r.speculation for r in session.router.replicas if r.speculation is not None]
        kept += sum(s.stats().accepted_tokens for s in speculations)
    assert kept > 50
