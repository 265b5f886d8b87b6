"""A run on a cluster may name a class of its own only where the router trusts its clients."""

import asyncio
import dataclasses
import random

import msgspec
import pytest

from stageline.engine import inprocess
from stageline.engine.policies.queueing import QueueState, StateAwarePolicy
from stageline.engine.types import Request
from stageline.errors import StagelineError
from stageline.testing import ListWorkload, Recorder
from tests.cluster.servers import cluster
from tests.reference.strategies import Scenario, build_sharing


class LongestPrefixMatch(StateAwarePolicy):
    """SGLang's lpm, the last of equals first."""

    def key(self, request: Request, state: QueueState) -> tuple[int, int]:
        """The most cached tokens first."""
        return -state.cached_tokens(request), -request.index


def crowded_scenario() -> Scenario:
    """One in which many wait."""
    scenarios = (build_sharing(random.Random(number)) for number in range(100))
    found = next(s for s in scenarios if s.scheduling.queueing == "longest-prefix" and len(s.users[0]) > 12)
    named = msgspec.structs.replace(found.scheduling, queueing=f"{__name__}:LongestPrefixMatch")
    return dataclasses.replace(found, scheduling=named)


async def test_a_trusting_router_runs_it_and_finds_what_one_process_finds() -> None:
    s = crowded_scenario()
    wanted = Recorder()
    totals = inprocess.run(s.plan, s.scheduling, ListWorkload(s.users[0]), seed=s.seed, observer=wanted)
    async with asyncio.timeout(60), cluster(s.plan, trust_runs=True) as servers:
        got, seen, _ = await servers.run(s.users[0], s.scheduling, seed=s.seed)
    assert got == totals
    assert sorted(seen.requests, key=lambda r: r.index) == sorted(wanted.requests, key=lambda r: r.index)


async def test_any_other_router_refuses_it() -> None:
    s = crowded_scenario()
    async with asyncio.timeout(60), cluster(s.plan) as servers:
        with pytest.raises(StagelineError, match=r"a class by name .*start the router with --trust-runs"):
            await servers.run(s.users[0], s.scheduling, seed=s.seed)
