"""The product's engine against the plain one: every record of every random scenario, to the nanosecond."""

import random

import pytest
from hypothesis import HealthCheck, given, settings

from stageline.engine import inprocess
from stageline.engine.types import RequestRecord
from tests.reference.results import Results, run_reference
from tests.reference.strategies import Scenario, build, scenarios


class Collector:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []
        self.tokens_ns: dict[int, list[int]] = {}
        self.since_ns: dict[int, list[int | None]] = {}

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See `Observer`."""
        self.tokens_ns.setdefault(index, []).append(now_ns)
        self.since_ns.setdefault(index, []).append(since_ns)

    def request(self, record: RequestRecord) -> None:
        """See `Observer`."""
        self.requests.append(record)


def run_product(scenario: Scenario) -> tuple[Results, Collector]:
    """The same run on the product's in-process engine."""
    seen = Collector()
    totals = inprocess.run(scenario.plan, scenario.scheduling, scenario.source(), seed=scenario.seed, observer=seen)
    requests = sorted(seen.requests, key=lambda record: record.index)
    return Results(requests, list(totals.stages), totals.window_start_ns, totals.window_end_ns), seen


def compare(scenario: Scenario) -> None:
    """All records, and the times of all tokens."""
    wanted = run_reference(scenario.plan, scenario.scheduling, scenario.source(), scenario.seed)
    got, seen = run_product(scenario)
    assert got.requests == wanted.requests
    assert got.stages == wanted.stages
    assert (got.window_start_ns, got.window_end_ns) == (wanted.window_start_ns, wanted.window_end_ns)
    assert seen.tokens_ns == wanted.tokens_ns
    assert seen.since_ns == {index: [None, *times[:-1]] for index, times in wanted.tokens_ns.items()}


@given(scenarios())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_records_are_equal(scenario: Scenario) -> None:
    compare(scenario)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_records_are_equal_on_numbered_scenarios(first: int) -> None:
    """`compare(build(random.Random(n)))` replays scenario n."""
    for number in range(first, first + 100):
        try:
            compare(build(random.Random(number)))
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise
