"""One session at a time: virtual runs, stages that die, gRPC, and a host that is too slow."""

import asyncio
import json
from unittest.mock import AsyncMock

import aiohttp
import grpc
import openai
import pytest
import uvloop
from grpc import aio

from stageline.engine.settings import Scheduling
from stageline.errors import Busy
from stageline.testing import Recorder
from stageline.v1 import router_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from stageline.wire.channels import Dialer
from stageline.wire.router_client import RouterClient, RunOrder
from stageline.wire.runs import rows_of
from tests.cluster.live import MODEL, Live, live, live_plan
from tests.cluster.plans import some_requests
from tests.cluster.servers import run_start, until


async def virtual(cluster: Live) -> int:
    """A virtual run; how many requests it served."""
    seen = Recorder()
    order = RunOrder(plan_digest=cluster.document.digest(), scheduling=Scheduling(), seed=0)
    async with RouterClient(cluster.grpc) as client:
        await client.run(order, iter(some_requests(5)), seen)
    return len(seen.requests)


async def test_an_idle_session_gives_way_to_a_run_and_comes_back() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        for _ in range(2):
            assert await virtual(cluster) == 5
            await cluster.ready()
            reply = await client.completions.create(model=MODEL, prompt="x", max_tokens=2)
            assert reply.usage.completion_tokens == 2
            await cluster.quiet()
        assert await cluster.metric("stageline_requests_finished_total") == 12


async def test_a_run_is_refused_while_requests_are_served() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        parts = await client.completions.create(model=MODEL, prompt="x", max_tokens=4000, stream=True)
        await anext(parts)
        with pytest.raises(Busy, match="1 live requests"):
            await virtual(cluster)
        await parts.close()
        await cluster.quiet()
        assert await virtual(cluster) == 5


async def test_a_run_that_is_only_begun_does_not_stop_live_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.runs.order._SILENT_S", 0.5)
    async with live(live_plan()) as cluster, cluster.client() as client, aio.insecure_channel(cluster.grpc) as channel:
        call = RouterStub(channel).Run()
        await call.write(router_pb2.RunRequest(start=run_start()))
        reply = await client.completions.create(model=MODEL, prompt="x", max_tokens=3)
        assert reply.usage.completion_tokens == 3
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
        assert "said nothing for 0.5 s" in await call.details()
        assert await virtual(cluster) == 5


async def test_a_client_that_leaves_its_upload_begins_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the server the messages of one that was cancelled end like those of one that has sent all."""
    async with live(live_plan()) as cluster, Dialer().channel(cluster.grpc) as channel:
        service = cluster.router._service
        monkeypatch.setattr(service._supervisor, "pause", pause := AsyncMock())
        for _ in range(10):
            call = RouterStub(channel).Run()
            await call.write(router_pb2.RunRequest(start=run_start()))
            await until(lambda: _is(service._busy))
            call.cancel()
            await until(lambda: _is(not service._busy))
        pause.assert_not_awaited()


async def _is(condition: bool) -> bool:
    return condition


async def test_a_client_that_takes_no_results_does_not_hold_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that is suspended with Ctrl-Z."""
    monkeypatch.setattr("router.runs.servicer._STALL_DEADLINES", 0.06)
    async with live(live_plan()) as cluster, Dialer().channel(cluster.grpc) as channel:
        call = RouterStub(channel).Run()
        await call.write(router_pb2.RunRequest(start=run_start(tokens=True)))
        await call.write(router_pb2.RunRequest(rows=rows_of(some_requests(3000, output_tokens=100))))
        await call.done_writing()
        assert (await call.read()).HasField("started")
        await cluster.ready()
        with pytest.raises(aio.AioRpcError, match=r"took nothing for 0.6 s"):
            while await call.read() is not aio.EOF:  # it is told once it reads again
                pass


async def test_the_loss_of_a_stage_ends_streams_and_is_mended() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client, aiohttp.ClientSession() as session:
        ask = {"model": MODEL, "prompt": "x", "max_tokens": 1000, "stream": True}
        streams = [await session.post(f"{cluster.url}/v1/completions", json=ask) for _ in range(3)]
        for stream in streams:
            await stream.content.readline()
        assert [cluster.idle_s(s, "fault") for s in range(3)] == [0, 0, 0]
        await cluster.stages[1].stop(0)
        for stream in streams:
            last = [line async for line in stream.content if line.startswith(b"data")][-1]
            assert "broke off" in json.loads(last[6:])["error"]["message"]
        await cluster.ready(False)
        with pytest.raises(openai.InternalServerError, match="no live session") as refused:
            await client.completions.create(model=MODEL, prompt="x")
        assert refused.value.status_code == 503
        assert refused.value.response.headers["retry-after"] == "1"
        await until(lambda: _broken(cluster))
        empty_s = [cluster.idle_s(s, "empty") for s in (0, 2)]
        await cluster.start_stage(cluster.stage_port(1))
        await cluster.ready()
        assert [cluster.idle_s(s, "empty") for s in (0, 2)] == empty_s  # until then all of it counts as fault
        mended_s = [cluster.idle_s(s, "fault") for s in (0, 2)]
        reply = await client.completions.create(model=MODEL, prompt="x", max_tokens=3)
        assert reply.usage.completion_tokens == 3
        assert [cluster.idle_s(s, "fault") for s in (0, 2)] == mended_s


async def _broken(cluster: Live) -> bool:
    """Whether the stages that are left count their time as fault."""
    return min(cluster.idle_s(s, "fault") for s in (0, 2)) > 0


async def test_generate_streams_over_grpc() -> None:
    async with live(live_plan()) as cluster, aio.insecure_channel(cluster.grpc) as channel:
        stub = RouterStub(channel)
        request = router_pb2.GenerateRequest(prompt="hello", max_tokens=10)
        replies = [reply async for reply in stub.Generate(request)]
        assert sum(r.tokens for r in replies) == 10
        end = replies[-1].finished
        assert (end.reason, end.output_tokens, end.prompt_tokens) == ("length", 10, 1)
        assert 0 < end.ttft_ns < end.e2e_ns
        with pytest.raises(aio.AioRpcError) as late:
            async for _ in stub.Generate(router_pb2.GenerateRequest(prompt="x", max_tokens=4000), timeout=0.2):
                pass
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await cluster.quiet()
        with pytest.raises(aio.AioRpcError) as wrong:
            async for _ in stub.Generate(router_pb2.GenerateRequest(prompt="x", max_tokens=90_000)):
                pass
        assert wrong.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_slow_host_slips_instead_of_reporting_latency() -> None:
    async with live(live_plan(base_ns=20_000), dilation="0.05") as cluster, cluster.client() as client:
        reply = await client.completions.create(model=MODEL, prompt="x", max_tokens=200)
        alone_s = reply.usage.e2e_s
        await asyncio.gather(*(client.completions.create(model=MODEL, prompt="x", max_tokens=100) for _ in range(16)))
        assert await cluster.metric("stageline_clock_slip_seconds_total") > 0
    steps = 200
    trip_s = (3 * (20_000 + 500) + 4 * 20_000 + 4 * 7) / 1e9
    assert alone_s == pytest.approx(steps * trip_s, rel=0.05)


def test_a_crowd_on_the_loop_that_servers_use() -> None:
    """Timers of uvloop are not asyncio's: a session re-arms its own at every turn."""

    async def crowd() -> None:
        async with live(live_plan(base_ns=300_000)) as cluster, cluster.client() as client:

            async def ask() -> int:
                parts = await client.completions.create(model=MODEL, prompt="x", max_tokens=60, stream=True)
                return sum([1 async for _ in parts])

            assert await asyncio.gather(*(ask() for _ in range(40))) == [60] * 40
            assert await cluster.metric("stageline_live_failures_total") == 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(crowd())
