"""The cluster against the in-process engine: the same records for every random scenario, over real gRPC."""

import asyncio
import random

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings

from stageline.engine import inprocess
from tests.cluster.servers import Seen, cluster
from tests.reference.strategies import Scenario, build, scenarios


async def compare(scenario: Scenario, window: int, mode: str) -> None:
    """All records and the times of all tokens."""
    wanted = Seen()
    totals = inprocess.run(scenario.plan, scenario.scheduling, scenario.source(), seed=scenario.seed, observer=wanted)
    requests = scenario.users[0]
    async with cluster(scenario.plan, window=window) as servers, asyncio.timeout(30):
        got, seen, _ = await servers.run(requests, scenario.scheduling, seed=scenario.seed, payload=mode)
    assert got == totals
    assert sorted(seen.requests, key=lambda r: r.index) == sorted(wanted.requests, key=lambda r: r.index)
    assert sorted(seen.tokens) == sorted(wanted.tokens)


def run(scenario: Scenario, number: int) -> None:
    """Another window and payload mode for every scenario; closed loops become open ones."""
    if scenario.starts_ns:
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(compare(scenario, 1 + number % 5, ("size", "capped", "full")[number % 3]))


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_numbered_scenarios(first: int) -> None:
    for number in range(first, first + 10):
        run(build(random.Random(number)), number)
