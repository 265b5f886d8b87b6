"""Crowds of bad clients: none stalls the pipeline, none leaves anything behind."""

import asyncio
import json
import socket

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.openai import door, streaming
from tests.cluster.live import MODEL, Live, live, live_plan


async def stalled(cluster: Live) -> asyncio.StreamWriter:
    """A client that asks for much and reads nothing."""
    host, _, port = cluster.http.rpartition(":")
    plug = socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    plug.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plug, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=plug, limit=1)
    body = json.dumps({"prompt": "x", "n": 8, "max_tokens": 400, "stream": True, "model": MODEL}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    assert reader is not None
    return writer


async def test_slow_readers_are_let_go_and_stall_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streaming, "HIGH_WATER_BYTES", 0)
    monkeypatch.setattr(streaming, "STALL_S", 0.3)
    async with live(live_plan(), queue=10_000) as cluster, cluster.client() as client:
        writers = [await stalled(cluster) for _ in range(10)]
        reply = await client.completions.create(model=MODEL, prompt="x", max_tokens=20)
        assert reply.usage.completion_tokens == 20
        await cluster.quiet()
        assert sum("let go" in record.message for record in caplog.records) == 10
        for writer in writers:
            writer.close()


async def test_a_client_that_leaves_before_its_headers_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def reset(*_: object, **__: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(door, "stream", reset)
    async with live(live_plan()) as cluster, aiohttp.ClientSession() as session:
        async with session.post(f"{cluster.url}/v1/completions", json={"prompt": "x", "stream": True}) as reply:
            assert reply.status == door.CLIENT_LEFT
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
        await cluster.quiet()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 300) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["prompt", "messages", "n", "stop", "max_tokens", "min_tokens", "seed", "stream", "stream_options", "logprobs",
     "user", "echo", "best_of", "priority", "ignore_eos", "model", "max_completion_tokens", "suffix", "temperature"]
)  # fmt: skip


def test_any_body_is_answered_or_refused_in_words() -> None:
    async def fuzz() -> None:
        async with live(live_plan()) as cluster, aiohttp.ClientSession() as session:
            bodies: list[tuple[str, bytes]] = []

            @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(
                st.sampled_from(["/v1/completions", "/v1/chat/completions", "/tokenize"]),
                st.dictionaries(FIELDS, JSON, max_size=5).map(lambda v: json.dumps(v).encode())
                | st.binary(max_size=40)
                | JSON.map(lambda v: json.dumps(v).encode()),
            )
            def collect(path: str, body: bytes) -> None:
                bodies.append((path, body))

            collect()
            for path, body in bodies:
                async with session.post(cluster.url + path, data=body) as reply:
                    text = await reply.text()
                    assert reply.status in (200, 400, 404, 429), (path, body, text)
                    if reply.status != 200:
                        assert json.loads(text)["error"]["message"], (path, body)
            await cluster.quiet()

    asyncio.run(fuzz())
