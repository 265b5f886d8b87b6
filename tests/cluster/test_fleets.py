"""Fleets on a cluster: pools of unlike plans behind one router. Random ones are in test_agreement.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from router.cluster.stages import StageTable
from router.runs.servicer import RouterServicer
from stage_server.servicer import StageServicer
from stageline.cluster.client_run import run_on_cluster
from stageline.engine.fleet import Fleet, Pool
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput, PlanMismatch, StagelineError
from stageline.runtime.deployment import Deployment
from stageline.testing import DigestObserver, ListWorkload, Recorder, run_fleet
from stageline.wire.router_client import RouterClient, RunOrder
from tests.cluster.plans import small_plan, some_requests
from tests.cluster.servers import Cluster, cluster, serving

SMALL = Pool(name="small", plan=small_plan(1))
LARGE = Pool(name="large", plan=small_plan(3, route=(0, 1, 2, 1), replicas=2), scheduling=Scheduling(credits=2))
FLEET = Fleet(pools=(SMALL, LARGE), balance="least-loaded")
SEED = 3


def wanted_digest() -> str:
    return run_fleet(Deployment(FLEET).fleet, some_requests(), seed=SEED).digest


def test_a_cluster_of_processes_gives_the_digest_of_the_in_process_engine() -> None:
    seen = DigestObserver()
    totals = run_on_cluster(FLEET, None, ListWorkload(some_requests()), seed=SEED, observer=seen)
    assert seen.finish(totals.stages) == wanted_digest()
    assert {stage.replica for stage in totals.stages if stage.microbatches} == {0, 1, 2}


@asynccontextmanager
async def mixed(*stages: StageServicer) -> AsyncIterator[Cluster]:
    """A cluster of stage servers that were started as they like."""
    served = Deployment(FLEET)
    async with AsyncExitStack() as stack:
        rows: list[list[str]] = [[] for _ in range(served.replicas)]
        for (replica, _), servicer in zip(served.stages, stages, strict=True):
            rows[replica].append(await stack.enter_async_context(serving(servicer)))
        router = RouterServicer(StageTable(served, rows))
        address = await stack.enter_async_context(serving(router))
        yield Cluster(FLEET, address, list(stages), rows, router)


async def test_a_stage_has_the_fleet_or_the_plan_of_its_pool_or_gets_it_from_the_router() -> None:
    whole, alone = Deployment(FLEET), Deployment(LARGE.plan)
    stages = [
        StageServicer(whole),
        StageServicer(None), StageServicer(alone), StageServicer(alone, replica=1, stage=2),
        StageServicer(whole, replica=2, stage=0), StageServicer(None, replica=2), StageServicer(whole, stage=2),
    ]  # fmt: skip
    async with asyncio.timeout(30), mixed(*stages) as servers:
        totals, seen, _ = await servers.run(some_requests(), None, seed=SEED)
    digest = DigestObserver()
    for record in seen.requests:
        digest.request(record)
    assert digest.finish(totals.stages) == wanted_digest()


async def test_a_stage_with_another_fleet_refuses() -> None:
    turned = Deployment(msgspec.structs.replace(FLEET, pools=(LARGE, SMALL)))
    stages = [StageServicer(None), *(StageServicer(turned) for _ in range(6))]
    async with asyncio.timeout(30), mixed(*stages) as servers:
        with pytest.raises(PlanMismatch, match=r"is of pool (large|small) in this stage's fleet, of pool large in the"):
            await servers.run(some_requests(), None)


async def failure(servers: Cluster, digest: str, scheduling: Scheduling | None) -> StagelineError:
    """How a run ends that the router refuses."""
    async with RouterClient(servers.address) as client:
        with pytest.raises(StagelineError) as caught:
            await client.run(RunOrder(plan_digest=digest, scheduling=scheduling, seed=0), iter(()), Recorder())
    return caught.value


async def test_a_run_of_something_else_is_refused() -> None:
    other = msgspec.structs.replace(FLEET, balance="kv")
    async with asyncio.timeout(30), cluster(FLEET) as servers:
        mismatch = await failure(servers, other.digest(), None)
        settings = await failure(servers, FLEET.digest(), Scheduling(credits=7))
    assert isinstance(mismatch, PlanMismatch)
    assert f"this cluster serves fleet {FLEET.digest()}, the run is for {other.digest()}" in str(mismatch)
    assert isinstance(settings, BadInput)
    assert "the pools have their own settings" in str(settings)


async def test_status_and_names_say_the_pool() -> None:
    async with asyncio.timeout(30), cluster(FLEET) as servers, RouterClient(servers.address) as client:
        status = await client.healthy(20)
        names = [stage.name for stage in servers.router._table]
    assert status.plan == FLEET.canonical()
    assert [(s.replica, s.pool, s.stage) for s in status.stages][:2] == [(0, "small", 0), (1, "large", 0)]
    assert names[:2] + names[-1:] == [
        "stage 0 (stage-0) of replica 0 (small)",
        "stage 0 (stage-0) of replica 1 (large)",
        "stage 2 (stage-2) of replica 2 (large)",
    ]
