"""Crowds of bad clients: none stalls the pipeline, none leaves anything behind."""

import asyncio
import contextlib
import gc
import json
import socket

import aiohttp
import pytest

from router.api.openai import http_server, streaming
from tests.cluster.live import MODEL, Live, live, live_plan
from tests.cluster.servers import until


async def stalled(cluster: Live) -> asyncio.StreamWriter:
    """A client that asks for much and reads nothing."""
    host, _, port = cluster.http.rpartition(":")
    plug = socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    plug.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plug, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=plug, limit=1)
    body = json.dumps({"prompt": "x", "max_tokens": 400, "stream": True, "model": MODEL}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    assert reader is not None
    return writer


async def test_fifty_slow_readers_are_let_go_and_stall_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streaming, "HIGH_WATER_BYTES", 0)
    monkeypatch.setattr(streaming, "SOCKET_BYTES", 4096)
    monkeypatch.setattr(streaming, "STALL_S", 0.3)
    async with live(live_plan(), queue=10_000) as cluster, cluster.client() as client:
        writers = [await stalled(cluster) for _ in range(50)]
        reply = await client.completions.create(model=MODEL, prompt="x", max_tokens=20)
        assert reply.usage.completion_tokens == 20
        await cluster.emptied()
        assert sum("disconnected a client" in record.message for record in caplog.records) == 50
        for writer in writers:
            writer.close()


async def test_a_client_that_leaves_before_its_headers_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def reset(*_: object, **__: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(http_server, "stream_reply", reset)
    async with live(live_plan()) as cluster, aiohttp.ClientSession() as session:
        async with session.post(f"{cluster.url}/v1/completions", json={"prompt": "x", "stream": True}) as reply:
            assert reply.status == http_server.CLIENT_LEFT
        await cluster.quiet()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_thousand_queued_requests_are_all_served() -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with live(live_plan(), queue=2000) as cluster, aiohttp.ClientSession(connector=connector) as crowd:

        async def ask(number: int) -> int:
            body = {"prompt": "x", "max_tokens": 1 + number % 3}
            async with crowd.post(f"{cluster.url}/v1/completions", json=body) as reply:
                return json.loads(await reply.read())["usage"]["completion_tokens"]

        counts = await asyncio.gather(*(ask(number) for number in range(1000)))
        assert counts == [1 + number % 3 for number in range(1000)]
        await cluster.emptied()


async def vanish(cluster: Live, number: int) -> None:
    """A client that leaves: before the first token, after some, or in the middle of a chunk."""
    host, _, port = cluster.http.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"prompt": "x", "max_tokens": 40, "stream": True, "n": 1 + number % 2}).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
    if number % 4:
        await reader.readexactly(400 * (number % 4))
    writer.transport.abort()


async def test_two_hundred_clients_that_vanish_leave_nothing_behind() -> None:
    async with live(live_plan()) as cluster, cluster.client() as client:
        await asyncio.gather(*(vanish(cluster, number) for number in range(200)))
        await cluster.emptied()
        reply = await client.completions.create(model=MODEL, prompt="x", max_tokens=2)
        assert reply.usage.completion_tokens == 2


async def crowd_of(cluster: Live) -> None:
    """Clients of all kinds, and their end."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as crowd:

        async def ask(number: int) -> None:
            body = {"prompt": "x", "max_tokens": 5, "stream": number % 2 == 0}
            async with crowd.post(f"{cluster.url}/v1/completions", json=body) as reply:
                assert await reply.read()

        stayed, left = (ask(number) for number in range(60)), (vanish(cluster, number) for number in range(60))
        await asyncio.gather(*stayed, *left)
    await cluster.quiet()


async def test_memory_is_flat() -> None:
    """After a crowd there are no more objects than after an equal one before it: a request leaves none.

    What a request keeps, every crowd adds again. Whatever else lives in this process may grow, too, but not always.
    """

    def objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    async with live(live_plan(), queue=10_000) as cluster:
        await crowd_of(cluster)
        before = 0

        async def flat() -> bool:
            return objects() <= before + 100  # less than one object for each of the 120 clients

        for _ in range(5):
            await crowd_of(cluster)
            before = objects()
            await crowd_of(cluster)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    return await until(flat)
        raise AssertionError(f"{objects() - before} objects more after the last crowd")
