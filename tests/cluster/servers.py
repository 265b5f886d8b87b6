"""A whole cluster in one process: real servers, real gRPC on loopback, free ports."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from router.cluster.stages import StageTable
from router.runs.servicer import RouterServicer
from stage_server.servicer import StageServicer
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request, RequestRecord, RunTotals
from stageline.plan.schema import Plan
from stageline.runtime.server import Server
from stageline.runtime.settings import ServerSettings
from stageline.wire.router_client import RouterClient, RunCost, RunOrder

DEFAULT = Scheduling()
SETTINGS = ServerSettings(grpc_host="127.0.0.1", grpc_port=0, metrics_port=-1, drain_s=0)


class Seen:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []
        self.tokens: list[tuple[int, int, int | None]] = []

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See `Observer`."""
        self.tokens.append((index, now_ns, since_ns))

    def request(self, record: RequestRecord) -> None:
        """See `Observer`."""
        self.requests.append(record)


@dataclass
class Cluster:
    """The servers of one plan."""

    plan: Plan
    address: str
    stages: list[StageServicer]
    addresses: list[list[str]]
    router: RouterServicer

    async def run(
        self, requests: Sequence[Request], scheduling: Scheduling = DEFAULT, *, seed: int = 0, **order: object
    ) -> tuple[RunTotals, Seen, RunCost]:
        """One run as a client."""
        seen = Seen()
        async with RouterClient(self.address) as client:
            totals, cost = await client.run(
                RunOrder(plan_digest=self.plan.digest(), scheduling=scheduling, seed=seed, **order),
                iter(requests),
                seen,
            )
        return totals, seen, cost


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
async def cluster(plan: Plan, *, window: int = 0) -> AsyncIterator[Cluster]:
    """Stage servers and a router."""
    async with AsyncExitStack() as stack:
        stages, addresses = [], []
        for _ in range(plan.replicas):
            row = []
            for _ in plan.stages:
                stages.append(StageServicer(plan))
                row.append(await stack.enter_async_context(serving(stages[-1])))
            addresses.append(row)
        router = RouterServicer(plan, StageTable(plan, addresses), window=window)
        address = await stack.enter_async_context(serving(router))
        yield Cluster(plan, address, stages, addresses, router)
