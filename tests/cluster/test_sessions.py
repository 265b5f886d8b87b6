"""Sessions, refusals and failures over real gRPC: every error is typed, names its place, and nothing hangs."""

import asyncio
from contextlib import AsyncExitStack
from unittest.mock import AsyncMock

import grpc
import pytest
from grpc import aio

import stageline
from router.runs import session as run_session
from stage_server.servicer import StageServicer
from stage_server.session import StageSession
from stageline.engine.settings import Scheduling
from stageline.errors import (
    BadInput,
    Busy,
    KvOverdraw,
    PlanMismatch,
    ProtocolError,
    RunFailed,
    SessionUnknown,
    Unavailable,
    VersionMismatch,
)
from stageline.plan.schema import Plan
from stageline.runtime.deployment import Deployment
from stageline.runtime.names import session_name
from stageline.testing import Recorder
from stageline.v1 import flow_pb2, router_pb2, router_pb2_grpc, stage_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from stageline.v1.stage_pb2_grpc import StageStub
from stageline.wire.errors import error_from, plain
from stageline.wire.router_client import RouterClient, RunOrder
from stageline.wire.version import wire_format
from tests.cluster.plans import small_plan, some_requests, with_digest_changed
from tests.cluster.servers import Cluster, cluster, run_start, serving, until


@pytest.fixture
async def servers():
    async with asyncio.timeout(30), cluster(small_plan()) as running:
        yield running


def open_request(session: str, plan: Plan, stage: int = 0) -> stage_pb2.OpenRequest:
    """As a router of this version asks; without links."""
    return stage_pb2.OpenRequest(
        session=session, plan_digest=plan.digest(), stage=stage, version=stageline.__version__, wire=wire_format()
    )


def opening(plan, session: str, **fields: object) -> stage_pb2.OpenRequest:
    """Opens the last stage of a plan of three; its outgoing link leads nowhere unless told."""
    request = open_request(session, plan, stage=2)
    request.downstream.add(link=3, address="127.0.0.1:1")
    for name, value in fields.items():
        setattr(request, name, value)
    return request


async def failure(call: object) -> Exception:
    """The error that a stream ends with."""
    with pytest.raises(aio.AioRpcError) as caught:
        while await call.read() is not aio.EOF:
            pass
    return plain(error_from(caught.value, "there"))


async def test_runs_follow_one_another(servers: Cluster):
    first, seen, cost = await servers.run(some_requests())
    second, again, _ = await servers.run(some_requests())
    assert first == second
    assert seen.requests == again.requests
    assert len(seen.requests) == 20
    assert cost.frames > 0


async def test_a_run_without_requests_ends(servers: Cluster):
    totals, seen, _ = await servers.run([])
    assert totals.requests == 0
    assert not seen.requests


async def test_tokens_only_if_asked_for(servers: Cluster):
    _, seen, _ = await servers.run(some_requests(), tokens=False)
    assert not seen.tokens
    assert len(seen.requests) == 20


async def test_another_plan_is_refused_by_the_router(servers: Cluster):
    other = with_digest_changed(servers.plan)
    async with RouterClient(servers.address) as client:
        order = RunOrder(plan_digest=other.digest(), scheduling=Scheduling(), seed=0)
        with pytest.raises(PlanMismatch) as caught:
            await client.run(order, iter(some_requests()), Recorder())
    assert servers.plan.digest() in str(caught.value)
    assert other.digest() in str(caught.value)


async def test_another_plan_is_refused_by_a_stage(servers: Cluster):
    other = with_digest_changed(servers.plan)
    async with aio.insecure_channel(servers.addresses[0][2]) as channel:
        error = await failure(StageStub(channel).Open(opening(other, "s")))
    assert isinstance(error, PlanMismatch)
    assert servers.plan.digest() in str(error)
    assert other.digest() in str(error)


@pytest.mark.parametrize(("version", "wire"), [("", ""), ("9.9.9", wire_format()), (stageline.__version__, "0" * 12)])
async def test_a_router_of_another_version_is_refused_by_a_stage(servers: Cluster, version: str, wire: str):
    request = opening(servers.plan, "s", version=version, wire=wire)
    async with aio.insecure_channel(servers.addresses[0][2]) as channel:
        error = await failure(StageStub(channel).Open(request))
    assert isinstance(error, VersionMismatch)
    assert "install the same version on all servers" in str(error)


async def test_a_stage_of_another_version_is_refused_by_the_router(monkeypatch):
    described = StageServicer.Describe

    async def older(self, request, context) -> stage_pb2.DescribeReply:
        reply = await described(self, request, context)
        reply.version = "0.0.9"
        reply.ClearField("wire")
        return reply

    monkeypatch.setattr(StageServicer, "Describe", older)
    async with asyncio.timeout(30), cluster(small_plan()) as servers:
        with pytest.raises(VersionMismatch, match=r"Stageline 0\.0\.9 \(wire format not told\), this router Stageline"):
            await servers.run(some_requests())


async def test_a_second_router_is_refused(servers: Cluster):
    plan = servers.plan
    async with (
        serving(ignored := StageServicer(Deployment(plan))) as sink,
        aio.insecure_channel(servers.addresses[0][1]) as channel,
    ):
        assert ignored.name
        request = open_request("mine", plan, stage=1)
        request.downstream.add(link=2, address=sink)
        holder = StageStub(channel).Open(request)
        described = await StageStub(channel).Describe(stage_pb2.DescribeRequest())
        while not described.busy:
            described = await StageStub(channel).Describe(stage_pb2.DescribeRequest())
        with pytest.raises(Busy, match=rf"stage 1 \(stage-1\) is held by session {session_name('mine')}"):
            await servers.run(some_requests())
        holder.cancel()
    await freed(servers)
    totals, _, _ = await servers.run(some_requests())
    assert totals.requests == 20


async def freed(servers: Cluster) -> None:
    """Returns when no stage is held."""

    async def free() -> bool:
        return not any(stage._session for stage in servers.stages)

    await until(free)


async def test_a_second_run_is_refused(servers: Cluster):
    async with aio.insecure_channel(servers.address) as channel:
        first = RouterStub(channel).Run()
        await first.write(router_pb2.RunRequest(start=run_start()))
        # The first one holds the router from its start on; the second is refused once that has come.
        while True:
            second = RouterStub(channel).Run()
            await second.done_writing()
            error = await failure(second)
            if isinstance(error, Busy):
                break
        first.cancel()
    assert "another run is under way" in str(error)


async def test_a_client_of_another_version_is_refused_and_refuses(
    servers: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aio.insecure_channel(servers.address) as channel:
        for start in (router_pb2.RunStart(), router_pb2.RunStart(version="0.1", wire="abc")):
            call = RouterStub(channel).Run()
            await call.write(router_pb2.RunRequest(start=start))
            await call.done_writing()
            error = await failure(call)
            assert isinstance(error, VersionMismatch)
            assert str(error).startswith("the client runs Stageline ")
    monkeypatch.setattr(run_session, "wire_format", lambda: "abc")
    with pytest.raises(VersionMismatch, match=r"router at .* runs Stageline .* \(wire format abc\), this client"):
        await servers.run(some_requests())


async def test_a_client_that_leaves_frees_the_stages(servers: Cluster):
    task = asyncio.create_task(servers.run(some_requests(200, 400)))
    await under_way(servers)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await left(servers)
    assert not any(stage._session for stage in servers.stages)
    totals, _, _ = await servers.run(some_requests())
    assert totals.requests == 20


async def under_way(servers: Cluster) -> None:
    """Returns when a run has got somewhere."""

    async def moving() -> bool:
        run = servers.router._run
        return run is not None and run.progress().now_ns > 0

    await until(moving)


async def left(servers: Cluster) -> None:
    """Returns when the router has noticed that the client of its run has left: until then others are refused."""

    async def free() -> bool:
        return not servers.router._busy

    await until(free)


async def test_an_unknown_session(servers: Cluster):
    async with aio.insecure_channel(servers.addresses[0][0]) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await StageStub(channel).Snapshot(stage_pb2.SnapshotRequest(session="gone"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert isinstance(error_from(caught.value, "there"), SessionUnknown)


async def test_a_bad_link_to_the_router_is_refused(servers: Cluster):
    async with aio.insecure_channel(servers.address) as channel:
        call = RouterStub(channel).Flow()
        await call.write(flow_pb2.FlowRequest(hello=flow_pb2.Hello(session="x", link=3)))
        assert isinstance(await failure(call), SessionUnknown)


async def test_no_hello_is_refused(servers: Cluster):
    async with aio.insecure_channel(servers.address) as channel:
        call = RouterStub(channel).Flow()
        await call.write(flow_pb2.FlowRequest(frame=flow_pb2.Frame()))
        assert isinstance(await failure(call), ProtocolError)


@pytest.mark.parametrize(
    ("frame", "kind", "text"),
    [
        (flow_pb2.Frame(number=7), ProtocolError, "frame 7 came instead of 0"),
        (flow_pb2.Frame(value=[1, 5, 6]), ProtocolError, "3 values are not a multiple of 18"),
        (
            flow_pb2.Frame(
                value=[0, 5, *[0] * 7, 1, 1, *[0] * 7],
                kv={"grant_count": [1], "grant_owner": [0], "grant_blocks": [1 << 30]},
            ),
            KvOverdraw,
            "stage 0",
        ),
    ],
)  # fmt: skip
async def test_a_frame_that_is_refused_ends_session_and_link(frame, kind, text):
    plan = small_plan(1)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(20))
        address = await stack.enter_async_context(serving(StageServicer(Deployment(plan))))
        sink = await stack.enter_async_context(serving(Welcoming()))
        stub = StageStub(await stack.enter_async_context(aio.insecure_channel(address)))
        request = open_request("s", plan)
        request.downstream.add(link=1, address=sink)
        session = stub.Open(request)
        assert isinstance(await session.read(), stage_pb2.OpenReply)
        link = stub.Flow()
        await link.write(flow_pb2.FlowRequest(hello=flow_pb2.Hello(session="s")))
        await link.write(flow_pb2.FlowRequest(frame=frame))
        for error in (await failure(link), await failure(session)):
            assert isinstance(error, kind)
            assert text in str(error)


async def test_a_router_that_leaves_while_a_session_ends_leaves_the_stage_free(monkeypatch):
    closing, gate = asyncio.Event(), asyncio.Event()

    async def connect(self) -> None:
        self.shell.close()

    async def close(self) -> None:
        closing.set()
        await gate.wait()

    monkeypatch.setattr(StageSession, "connect", connect)
    monkeypatch.setattr(StageSession, "close", close)
    plan = small_plan()
    servicer, context = StageServicer(Deployment(plan)), AsyncMock()
    async with asyncio.timeout(20):
        for session in ("first", "second"):
            call = asyncio.create_task(servicer.Open(opening(plan, session), context))
            await closing.wait()
            call.cancel()
            await asyncio.wait([call])
            gate.set()
            await servicer.drained()
            servicer._draining = False
            closing.clear()
            gate.clear()
    context.abort.assert_not_called()


class Welcoming(router_pb2_grpc.RouterServicer):
    """A router that takes every return link and listens no further."""

    name = "stageline.v1.Router"

    def add_to(self, server: aio.Server) -> None:
        router_pb2_grpc.add_RouterServicer_to_server(self, server)

    async def start(self, endpoints: object, announce: object) -> object:
        return endpoints

    async def drained(self) -> None: ...

    async def stop(self) -> None: ...

    async def Flow(self, request_iterator, context):  # noqa: N802
        yield flow_pb2.FlowReply(welcome=flow_pb2.Welcome())
        async for _ in request_iterator:
            pass


async def test_rows_out_of_order_are_refused(servers: Cluster):
    with pytest.raises(ProtocolError, match="arrives before"):
        await servers.run(list(reversed(some_requests())))


async def test_a_bad_row_on_the_clients_side_keeps_its_error(servers: Cluster):
    def rows():
        yield some_requests()[0]
        raise BadInput("trace.csv:3", "x", "not a number")

    with pytest.raises(BadInput, match=r"trace\.csv:3"):
        async with RouterClient(servers.address) as client:
            order = RunOrder(plan_digest="", scheduling=Scheduling(), seed=0)
            await client.run(order, rows(), Recorder())


async def test_a_missing_router():
    async with RouterClient("127.0.0.1:1") as client:
        with pytest.raises(Unavailable, match=r"router at 127\.0\.0\.1:1 can't be reached"):
            await client.status()


async def test_a_stage_that_stops_during_a_run_is_named(servers: Cluster):
    task = asyncio.create_task(servers.run(some_requests(300, 300)))
    await under_way(servers)
    servers.stages[1]._session.shell.fail(Unavailable("stage 1 (stage-1) lost its memory"))
    with pytest.raises(RunFailed, match=r"stage 1 \(stage-1\)"):
        await task
    await freed(servers)
    totals, _, _ = await servers.run(some_requests())
    assert totals.requests == 20
