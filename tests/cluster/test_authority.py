"""The table of docs/security.md, line by line: who may do what."""

import asyncio
import logging

import aiohttp
import grpc
import pytest
from grpc import aio

from stageline.v1 import flow_pb2, router_pb2, stage_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from stageline.v1.stage_pb2_grpc import StageStub
from tests.cluster.live import Live, live, live_plan
from tests.cluster.servers import run_start

OPEN = ("/", "/status", "/health", "/ready", "/version", "/metrics")
CLOSED = (
    ("GET", "/v1/models"), ("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("POST", "/v1/embeddings"),
    ("POST", "/tokenize"),
)  # fmt: skip


async def refused(call: object) -> grpc.StatusCode:
    """The code that a call ends with."""
    with pytest.raises(aio.AioRpcError) as caught:
        if hasattr(call, "read"):
            while await call.read() is not aio.EOF:
                pass
        else:
            await call
    return caught.value.code()


async def test_without_the_key_a_client_sees_that_the_router_lives_and_no_more() -> None:
    async with live(live_plan(), api_key="k") as cluster, aiohttp.ClientSession() as session:
        for path in OPEN:
            async with session.get(cluster.url + path) as reply:
                assert reply.status == 200, path
        for method, path in CLOSED:
            async with session.request(method, cluster.url + path, json={}) as reply:
                assert reply.status == 401, path
        async with aio.insecure_channel(cluster.grpc) as channel:
            stub = RouterStub(channel)
            assert await refused(stub.Status(router_pb2.StatusRequest())) is grpc.StatusCode.UNAUTHENTICATED
            assert await refused(stub.Generate(router_pb2.GenerateRequest())) is grpc.StatusCode.UNAUTHENTICATED
            assert await refused(stub.Run(iter(()))) is grpc.StatusCode.UNAUTHENTICATED
            link = stub.Flow()
            await link.write(flow_pb2.FlowRequest(hello=flow_pb2.Hello(session="guess", link=3)))
            assert await refused(link) is grpc.StatusCode.NOT_FOUND


async def status_of(cluster: Live) -> str:
    """All that a client with the key is told."""
    async with aio.insecure_channel(cluster.grpc) as channel:
        metadata = (("authorization", "Bearer k"),)
        reply = await RouterStub(channel).Status(router_pb2.StatusRequest(metrics=True), metadata=metadata)
        return str(reply)


async def test_a_sessions_id_is_a_secret_of_router_and_stages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with live(live_plan(), api_key="k") as cluster:
        secret = cluster.router._service._supervisor.session.id
        assert secret not in await status_of(cluster)
        async with aio.insecure_channel(cluster.stage_ports[0]) as channel:
            stub = StageStub(channel)
            described = await stub.Describe(stage_pb2.DescribeRequest(metrics=True))
            assert described.busy
            assert secret not in str(described)
            call = stub.Open(stage_pb2.OpenRequest(session="mine", plan_digest=described.plan_digest))
            with pytest.raises(aio.AioRpcError, match="is held by session") as held:
                await call.read()
            assert secret not in str(held.value)
            # Every name that can be learnt is of no use.
            name = held.value.details().split("session ")[1].split(";")[0]
            for guess in ("", "mine", name):
                await stub.Close(stage_pb2.CloseRequest(session=guess))
                assert await refused(stub.Snapshot(stage_pb2.SnapshotRequest(session=guess))) is (
                    grpc.StatusCode.NOT_FOUND
                )
                link = stub.Flow()
                await link.write(flow_pb2.FlowRequest(hello=flow_pb2.Hello(session=guess)))
                assert await refused(link) is grpc.StatusCode.NOT_FOUND
            assert (await stub.Describe(stage_pb2.DescribeRequest())).busy
        async with cluster.client() as client:
            reply = await client.with_options(api_key="k").completions.create(model="", prompt="x", max_tokens=2)
        assert reply.usage.completion_tokens == 2
    assert secret not in "".join(f"{r.getMessage()} {r.__dict__}" for r in caplog.records if "stageline" in r.name)


async def test_a_stage_with_a_key_opens_for_its_router_only() -> None:
    async with live(live_plan(), stage_key="secret") as cluster:
        await cluster.router._service._supervisor.pause()
        async with aio.insecure_channel(cluster.stage_ports[0]) as channel:
            for key in ("", "wrong"):
                call = StageStub(channel).Open(stage_pb2.OpenRequest(session="mine", key=key))
                assert await refused(call) is grpc.StatusCode.UNAUTHENTICATED
        cluster.router._service._supervisor.resume()
        await cluster.ready()


async def test_no_client_makes_the_router_import_code_or_read_files() -> None:
    async with live(live_plan()) as cluster, aio.insecure_channel(cluster.grpc) as channel:
        for start in (
            run_start(scheduling=b'{"queueing":"os:system"}'),
            run_start(workload=router_pb2.WorkloadSpec(text="poisson:rate=1,trace=/etc/passwd")),
        ):
            call = RouterStub(channel).Run()
            await call.write(router_pb2.RunRequest(start=start))
            await call.done_writing()
            with pytest.raises(aio.AioRpcError, match="--trust-runs"):
                async with asyncio.timeout(20):
                    while await call.read() is not aio.EOF:
                        pass


async def test_priorities_have_nine_digits() -> None:
    async with live(live_plan()) as cluster, aiohttp.ClientSession() as session:
        for priority in (10**9, -(10**9), 10**30):
            body = {"prompt": "x", "max_tokens": 1, "priority": priority}
            async with session.post(f"{cluster.url}/v1/completions", json=body) as reply:
                assert (reply.status, "priority" in await reply.text()) == (400, True)
        async with aio.insecure_channel(cluster.grpc) as channel:
            request = router_pb2.GenerateRequest(prompt="x", max_tokens=1, priority=10**9)
            assert await refused(RouterStub(channel).Generate(request)) is grpc.StatusCode.INVALID_ARGUMENT
