"""A whole cluster in one process: real servers, real gRPC on loopback, free ports."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

import stageline
from router.cluster.stages import StageTable
from router.runs.servicer import RouterServicer
from stage_server.servicer import StageServicer
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request, RunTotals
from stageline.runtime.deployment import Deployment, Document
from stageline.runtime.server import Server
from stageline.runtime.settings import ServerSettings
from stageline.testing import Recorder
from stageline.v1 import router_pb2
from stageline.wire.router_client import RouterClient, RunCost, RunOrder
from stageline.wire.version import wire_format

DEFAULT = Scheduling()
SETTINGS = ServerSettings(grpc_host="127.0.0.1", grpc_port=0, metrics_port=-1, drain_s=0)


@dataclass
class Cluster:
    """The servers of one plan or fleet."""

    plan: Document
    address: str
    stages: list[StageServicer]
    addresses: list[list[str]]
    router: RouterServicer

    async def run(
        self, requests: Sequence[Request], scheduling: Scheduling | None = DEFAULT, *, seed: int = 0, **order: object
    ) -> tuple[RunTotals, Recorder, RunCost]:
        """One run as a client."""
        seen = Recorder()
        async with RouterClient(self.address) as client:
            totals, cost = await client.run(
                RunOrder(plan_digest=self.plan.digest(), scheduling=scheduling, seed=seed, **order),
                iter(requests),
                seen,
            )
        return totals, seen, cost


def run_start(**fields: object) -> router_pb2.RunStart:
    """The start of a run, as a client of this version sends it."""
    return router_pb2.RunStart(version=stageline.__version__, wire=wire_format(), **fields)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Returns when the condition holds; the test's own deadline bounds it."""
    while not await condition():
        await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(service: object) -> AsyncIterator[str]:
    """One server; its gRPC address."""
    server = Server(SETTINGS, service, CollectorRegistry())
    endpoints = await server.start()
    await server.set_serving(True)
    try:
        yield endpoints.grpc
    finally:
        await server.stop(5)


@asynccontextmanager
async def cluster(document: Document, *, window: int = 0, trust_runs: bool = False) -> AsyncIterator[Cluster]:
    """Stage servers and a router."""
    served = Deployment(document)
    async with AsyncExitStack() as stack:
        stages: list[StageServicer] = []
        addresses: list[list[str]] = [[] for _ in range(served.replicas)]
        for replica, _ in served.stages:
            stages.append(StageServicer(served))
            addresses[replica].append(await stack.enter_async_context(serving(stages[-1])))
        router = RouterServicer(StageTable(served, addresses), window=window, trust_runs=trust_runs)
        address = await stack.enter_async_context(serving(router))
        yield Cluster(document, address, stages, addresses, router)
