"""The cluster against the in-process engine: one scenario, over real gRPC."""

import asyncio

import uvloop

from stageline.testing import run_plan
from tests.cluster.servers import cluster
from tests.property.differences import same
from tests.reference.strategies import Scenario

MODES = ("size", "capped", "full")


def compare(scenario: Scenario) -> None:
    """All records and the times of all tokens. The scenario's seed decides window and payload."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_compare(scenario, 1 + scenario.seed % 8, MODES[scenario.seed % len(MODES)]))


async def _compare(scenario: Scenario, window: int, mode: str) -> None:
    requests = scenario.events()
    wanted = run_plan(scenario.plan, requests, scenario.scheduling, seed=scenario.seed, paranoid=False)
    async with asyncio.timeout(60), cluster(scenario.plan, window=window) as servers:
        totals, seen, _ = await servers.run(requests, scenario.scheduling, seed=scenario.seed, payload=mode)
    same("totals", totals, wanted.totals)
    same("requests", seen.by_index(), wanted.requests)
    same("tokens", sorted(seen.tokens), sorted(wanted.seen.tokens))
