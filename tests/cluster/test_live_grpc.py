"""Router.Generate: deadlines, cancellation, and the same refusals as over HTTP."""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import grpc
import pytest
from grpc import aio

from router.api import generate as live_grpc
from router.api.prompts import PromptReader
from router.live.service import Choice
from stageline.errors import Busy
from stageline.v1 import router_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from tests.cluster.live import MODEL, Live, live, live_plan
from tests.cluster.servers import until

LONG = {"prompt": "x", "max_tokens": 2000}  # half of the KV cache


async def refused(channel: aio.Channel, **fields: object) -> tuple[grpc.StatusCode, str]:
    """Code and sentence of a request that is not served."""
    with pytest.raises(aio.AioRpcError) as caught:
        async for _ in RouterStub(channel).Generate(router_pb2.GenerateRequest(**fields)):
            pass
    return caught.value.code(), caught.value.details() or ""


async def begun(channel: aio.Channel) -> aio.UnaryStreamCall:
    """A long request whose first token has come."""
    call = RouterStub(channel).Generate(router_pb2.GenerateRequest(**LONG))
    assert isinstance(await call.read(), router_pb2.GenerateReply)
    return call


async def waiting(cluster: Live) -> bool:
    """Whether a request waits for admission."""
    return await cluster.metric("stageline_live_requests_waiting") > 0


async def test_cancelling_frees_the_request() -> None:
    """One that runs, and those that wait behind it."""
    async with live(live_plan()) as cluster, aio.insecure_channel(cluster.grpc) as channel:
        calls = [await begun(channel)]
        calls += [RouterStub(channel).Generate(router_pb2.GenerateRequest(**LONG)) for _ in range(3)]
        await until(lambda: waiting(cluster))
        for call in calls:
            assert call.cancel()
        await cluster.emptied()


async def test_a_deadline_ends_a_request_that_runs_and_one_that_waits() -> None:
    async with live(live_plan()) as cluster, aio.insecure_channel(cluster.grpc) as channel:
        stub = RouterStub(channel)
        holders = [await begun(channel) for _ in range(2)]
        late = stub.Generate(router_pb2.GenerateRequest(**LONG), timeout=1.0)
        await until(lambda: waiting(cluster))
        assert await late.code() == grpc.StatusCode.DEADLINE_EXCEEDED

        async def nobody() -> bool:
            return not await waiting(cluster)

        await until(nobody)
        for call in holders:
            call.cancel()
        await cluster.quiet()
        running = stub.Generate(router_pb2.GenerateRequest(**LONG), timeout=1.0)
        assert isinstance(await running.read(), router_pb2.GenerateReply)
        assert await running.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await cluster.emptied()


async def test_refusals_have_the_codes_of_the_http_door() -> None:
    code = grpc.StatusCode
    async with live(live_plan(), queue=1) as cluster, aio.insecure_channel(cluster.grpc) as channel:
        assert await refused(channel, prompt="x", model="gpt-4") == (
            code.NOT_FOUND,
            "The model `gpt-4` does not exist.",
        )
        for fields, says in (
            ({"prompt": "x", "max_tokens": 9000}, "maximum context length"),
            ({"prompt": "x", "min_tokens": 9000}, "maximum context length"),
            ({"prompt": "x", "min_tokens": 5, "max_tokens": 4}, "min_tokens"),
            ({"prompt_tokens": 4000, "max_tokens": 4000}, "KV cache"),
            ({"max_tokens": 5}, "prompt"),
        ):
            got, sentence = await refused(channel, **fields)
            assert (got, says in sentence) == (code.INVALID_ARGUMENT, True), sentence
        holders = [await begun(channel) for _ in range(2)]
        holders.append(RouterStub(channel).Generate(router_pb2.GenerateRequest(**LONG)))
        await until(lambda: waiting(cluster))
        got, sentence = await refused(channel, prompt="x", max_tokens=1)
        assert (got, "queue is full" in sentence) == (code.RESOURCE_EXHAUSTED, True)
        for holder in holders:
            holder.cancel()
        await cluster.quiet()


async def test_the_loss_of_a_stage_ends_the_stream() -> None:
    async with live(live_plan()) as cluster, aio.insecure_channel(cluster.grpc) as channel:
        call = await begun(channel)
        await cluster.stages[1].stop(0)
        with pytest.raises(aio.AioRpcError, match="broke off") as lost:
            while await call.read():
                pass
        assert lost.value.code() == grpc.StatusCode.UNAVAILABLE
        got, sentence = await refused(channel, prompt="x")
        assert (got, "no live session" in sentence) == (grpc.StatusCode.UNAVAILABLE, True)


async def test_both_doors_say_the_same_to_the_same_request() -> None:
    ids, ask = [5, 6, 7], {"max_tokens": 9, "seed": 3}
    async with live(live_plan()) as cluster, aio.insecure_channel(cluster.grpc) as channel, cluster.client() as client:
        for prompt, fields in ((ids, {"prompt_ids": ids}), ("once", {"prompt": "once"})):
            spoken = await client.completions.create(model=MODEL, prompt=prompt, **ask)
            request = router_pb2.GenerateRequest(model=MODEL, **fields, **ask)
            replies = [reply async for reply in RouterStub(channel).Generate(request)]
            assert "".join(reply.text for reply in replies) == spoken.choices[0].text
            assert replies[-1].finished.prompt_tokens == spoken.usage.prompt_tokens


async def test_a_client_that_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is cancelled, as that of any client that leaves."""
    monkeypatch.setattr(live_grpc, "STALL_S", 0.05)
    closed: list[bool] = []
    stream = SimpleNamespace(ended=False, tokens=3, error=None, record=None)
    output = SimpleNamespace(text=lambda start, end: "x" * (end - start))

    async def at_once() -> None:
        pass

    async def never(reply: object) -> None:
        await asyncio.Event().wait()

    reply = SimpleNamespace(choices=[Choice(output, stream)], wait=at_once, close=lambda: closed.append(True))
    models = SimpleNamespace(find=lambda name: SimpleNamespace(reader=PromptReader()))
    service = SimpleNamespace(models=models, submit=AsyncMock(return_value=reply), dilation=1.0)
    context = SimpleNamespace(write=never, invocation_metadata=tuple)
    with pytest.raises(Busy, match="read nothing for"):
        await live_grpc.generate(service, router_pb2.GenerateRequest(prompt="x"), context)
    assert closed == [True]
