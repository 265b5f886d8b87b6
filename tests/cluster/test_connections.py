"""However a session ends, it gives its connections back then, and not when Python's collector finds what held them.

gRPC keeps a closed channel's connection for as long as anybody holds a call of it. So the collector is off here, and
both ends of every connection are in this process: one that is left costs it two descriptors.
"""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from router.runs.session import RunSession
from stage_server import servicer
from stageline.engine.types import Request
from stageline.errors import ProtocolError, RunFailed, StagelineError, Unavailable
from stageline.v1 import flow_pb2
from stageline.wire import grpc_options, outlink
from stageline.wire.inlink import FlowContext
from tests.cluster.plans import small_plan, some_requests
from tests.cluster.servers import Cluster, cluster, until

Way = Callable[[Cluster], Awaitable[None]]


@pytest.fixture
async def servers() -> AsyncIterator[Cluster]:
    """They have served already."""
    async with cluster(small_plan()) as running:
        await running.run(some_requests())
        gc.disable()
        try:
            yield running
        finally:
            gc.enable()


async def ends_well(servers: Cluster) -> None:
    await servers.run(some_requests())


async def loses_a_stage(servers: Cluster) -> None:
    task = asyncio.create_task(_fails(servers, RunFailed, some_requests(300, 300)))
    await until(lambda: _under_way(servers))
    servers.stages[1]._session.shell.fail(Unavailable("stage 1 (stage-1) lost its memory"))
    await task


async def loses_its_client(servers: Cluster) -> None:
    task = asyncio.create_task(servers.run(some_requests(300, 300)))
    await until(lambda: _under_way(servers))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def with_links_that(*replies: flow_pb2.FlowReply, error: type[StagelineError]) -> Way:
    """Stages say only this on their links."""

    async def flow(context: FlowContext, link_of: object) -> None:
        await context.read()
        for reply in replies:
            await context.write(reply)
        await asyncio.Event().wait()

    async def way(servers: Cluster) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(servicer, "serve_flow", flow)
            patch.setattr(grpc_options, "CONNECT_S", 0.2)
            patch.setattr(outlink, "_REASON_S", 0.1)
            await _fails(servers, error, some_requests())

    return way


async def _fails(servers: Cluster, error: type[StagelineError], requests: list[Request]) -> None:
    """Not pytest.raises: an error that is kept keeps the client's call in its frames."""
    try:
        await servers.run(requests)
    except error:
        return
    pytest.fail("the run ended well")


async def _under_way(servers: Cluster) -> bool:
    run = servers.router._run
    return run is not None and run.progress().now_ns > 0


WELCOME, ASK = flow_pb2.FlowReply(welcome=flow_pb2.Welcome()), flow_pb2.FlowReply(ask=flow_pb2.Ask())


@pytest.mark.parametrize("way", [
    pytest.param(ends_well, id="ends well"),
    pytest.param(loses_a_stage, id="loses a stage"),
    pytest.param(loses_its_client, id="loses its client"),
    pytest.param(with_links_that(error=Unavailable), id="nobody answers on a link"),
    pytest.param(with_links_that(ASK, error=ProtocolError), id="a link is not welcomed"),
    pytest.param(with_links_that(WELCOME, WELCOME, error=ProtocolError), id="a link is welcomed twice"),
])  # fmt: skip
async def test_a_session_leaves_no_connection(servers: Cluster, way: Way) -> None:
    async with asyncio.timeout(20):
        await until(lambda: _idle(servers))
        before = descriptors()
        for _ in range(3):
            await way(servers)
            await until(lambda: _idle(servers))
        await until(lambda: _no_more_than(before))


@pytest.mark.parametrize("way", [ends_well, loses_its_client])
async def test_a_run_that_is_over_is_let_go(servers: Cluster, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds in memory grows with its requests."""
    begun: list[weakref.ref[RunSession]] = []
    monkeypatch.setattr(servers.router, "_on_run", lambda run: begun.append(weakref.ref(run)) if run else None)
    async with asyncio.timeout(20):
        await way(servers)
        await until(lambda: _idle(servers))
        await until(lambda: _all_gone(begun))


def descriptors() -> int:
    """How many this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _no_more_than(number: int) -> bool:
    return descriptors() <= number


async def _all_gone(runs: list[weakref.ref[RunSession]]) -> bool:
    return bool(runs) and not any(run() for run in runs)


async def _idle(servers: Cluster) -> bool:
    return not servers.router._busy and not any(stage._session for stage in servers.stages)
