"""Whatever bytes come to a port, whatever body to the door: an answer in words, no traceback, nothing left behind."""

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import TypeVar

import aiohttp
import grpc
import pytest
from grpc import aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.api.openai import bodies, idle
from stageline.v1 import router_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from stageline.wire import grpc_options
from stageline.wire.http_headers import OUTPUT_TOKENS_HEADER
from tests.certificates import Authority
from tests.cluster.live import MODEL, live, live_plan

V = TypeVar("V")
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
BROKEN = {
    "gRPC": HTTP2,
    "TLS": TLS_HELLO,
    "zeros": bytes(100),
    "a line": b"hello\r\n\r\n",
    "a long path": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    "a long header": b"GET / HTTP/1.1\r\nx: " + b"b" * 70_000 + b"\r\n\r\n",
    "a negative length": POST + b"Content-Length: -5\r\n\r\nabc",
    "two lengths": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a broken chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "broken gzip": POST + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
    "an unknown coding": POST + b"Content-Encoding: br\r\nContent-Length: 5\r\n\r\nabcde",
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "no address": b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes after a request": b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n\x00\x01\x02\r\n\r\n",
}


def examples(strategy: st.SearchStrategy[V], count: int) -> list[V]:
    """So many values: hypothesis itself is not asynchronous."""
    found: list[V] = []

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: V) -> None:
        found.append(value)

    collect()
    return found


async def sent(address: str, data: bytes, *, hang_up: bool = True) -> bytes:
    """The first that comes back; empty when the connection is closed or broken instead."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        if hang_up:
            writer.write_eof()
        return await reader.read(1000)
    except OSError:
        return b""
    finally:
        writer.close()


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged with a traceback, or as an error."""
    bad = [r for r in caplog.records if r.levelno >= logging.ERROR or (r.exc_info and r.levelno > logging.DEBUG)]
    return [f"{r.name}: {r.getMessage()} {r.exc_info}" for r in bad]


async def test_what_is_no_http_is_refused_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with live(live_plan()) as cluster:
        for name, data in BROKEN.items():
            assert (await sent(cluster.http, data, hang_up=False))[9:12] in (b"400", b"404"), name
            await sent(cluster.http, data)
        for data in examples(st.binary(min_size=1, max_size=200), 60):
            await sent(cluster.http, data)
        for data in examples(st.binary(max_size=60).map(lambda tail: b"GET /v1/models HTTP/1.1\r\n" + tail), 60):
            await sent(cluster.http, data)
        await cluster.emptied()
    assert tracebacks(caplog) == []


async def test_garbage_on_the_other_ports_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async with live(live_plan(), metrics_port=0) as cluster:
        metrics = f"127.0.0.1:{cluster.router._metrics.port}"
        cases = [*BROKEN.values(), *examples(st.binary(min_size=1, max_size=200), 40)]
        for address in (metrics, cluster.grpc, cluster.stage_ports[0]):
            for data in cases:
                await sent(address, data)
        assert (await sent(metrics, b"GET /metrics HTTP/1.1\r\n\r\n", hang_up=False)).startswith(b"HTTP/1.1 200")
        await cluster.emptied()
    assert tracebacks(caplog) == []


async def test_plain_bytes_on_a_door_with_tls_leave_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = Authority(tmp_path).files()
    async with live(live_plan(), tls_cert=own.cert, tls_key=own.key) as cluster:
        for data in BROKEN.values():
            await sent(cluster.http, data)
        await cluster.ready()
    assert tracebacks(caplog) == []


async def test_half_a_body_does_not_hold_its_connection_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.2)
    async with live(live_plan()) as cluster:
        reply = await sent(cluster.http, POST + b'Content-Length: 500\r\n\r\n{"prom', hang_up=False)
        assert reply.startswith(b"HTTP/1.1 408")
        await cluster.emptied()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 300) | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["prompt", "messages", "n", "stop", "max_tokens", "min_tokens", "seed", "stream", "stream_options", "logprobs",
     "user", "echo", "best_of", "priority", "ignore_eos", "model", "max_completion_tokens", "suffix", "temperature"]
)  # fmt: skip
VALID = json.dumps(
    {"model": MODEL, "prompt": "on\ud800ce", "max_tokens": 3, "n": 2, "stop": ["a", ""], "seed": -1, "stream": True,
     "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
).encode()  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good body with a few bytes changed, cut or doubled."""
    body = bytearray(VALID)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body) - 1))
        body[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(body[: draw(st.integers(1, len(body)))] if draw(st.booleans()) else body)


BODIES = (
    st.dictionaries(FIELDS, JSON, max_size=5).map(lambda v: json.dumps(v).encode())
    | st.binary(max_size=40)
    | JSON.map(lambda v: json.dumps(v).encode())
    | damaged()
    | st.sampled_from([b"[" * 100_000, b'{"prompt":' * 2_000, b'{"prompt":"' + b"a " * 300_000 + b'"}', b"\xff\xfe{}"])
)
PATHS = st.sampled_from(["/v1/completions", "/v1/chat/completions", "/tokenize"])
TOKENS = st.none() | st.sampled_from(["3", "0", "-1", "1e3", "\u0663", "9999999999", "", "x" * 100, "2 "])


async def test_any_body_is_answered_or_refused_in_words(caplog: pytest.LogCaptureFixture) -> None:
    async with live(live_plan()) as cluster, aiohttp.ClientSession() as session:
        for path, body, tokens in examples(st.tuples(PATHS, BODIES, TOKENS), 150):
            headers = {} if tokens is None else {OUTPUT_TOKENS_HEADER: tokens}
            async with session.post(cluster.url + path, data=body, headers=headers) as reply:
                text = await reply.text()
                assert reply.status in (200, 400, 404, 429), (path, body[:200], text)
                if reply.status != 200:
                    assert json.loads(text)["error"]["message"], (path, body[:200])
        await cluster.emptied()
    assert tracebacks(caplog) == []


NUMBER = st.integers(0, 50) | st.integers(0, 1 << 31)
REQUESTS = st.builds(
    router_pb2.GenerateRequest,
    prompt=st.text(st.characters(codec="utf-8"), max_size=20),
    prompt_ids=st.lists(st.integers(0, 1 << 31), max_size=4),
    prompt_tokens=NUMBER,
    max_tokens=NUMBER,
    min_tokens=NUMBER,
    output_tokens=NUMBER,
    ignore_eos=st.booleans(),
    stop=st.lists(st.sampled_from(["", "a", " the"]), max_size=20),
    seed=st.integers(-(1 << 31), 1 << 31),
    priority=st.integers(-(1 << 31), (1 << 31) - 1),
    session=st.text(st.characters(codec="utf-8"), max_size=5),
)


async def test_any_request_over_grpc_is_answered_or_refused_in_words(caplog: pytest.LogCaptureFixture) -> None:
    async with live(live_plan()) as cluster, aio.insecure_channel(cluster.grpc) as channel:
        stub = RouterStub(channel)
        for request in examples(REQUESTS, 60):
            call = stub.Generate(request, timeout=20)
            try:
                assert isinstance(await call.read(), router_pb2.GenerateReply)
            except aio.AioRpcError as error:
                assert (error.code(), bool(error.details())) == (grpc.StatusCode.INVALID_ARGUMENT, True), error
            call.cancel()
        await cluster.emptied()
    assert tracebacks(caplog) == []


async def test_connections_that_nobody_uses_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent one, half a head, and one that is kept after its request; not the one whose request is under way."""
    monkeypatch.setattr(idle, "IDLE_S", 0.3)
    monkeypatch.setattr(idle, "SWEEP_S", 0.05)
    async with live(live_plan()) as cluster, cluster.client() as client:
        long = asyncio.create_task(client.completions.create(model=MODEL, prompt="x", max_tokens=400))
        for data in (b"", b"GET /health HTTP/1.1\r\nHost:", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):
            host, _, port = cluster.http.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    while await reader.read(1000):
                        pass
            writer.close()
        assert (await long).usage.completion_tokens == 400


async def test_a_connection_that_never_speaks_grpc_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = dict(grpc_options.SERVER) | {"grpc.server_handshake_timeout_ms": 300}
    monkeypatch.setattr(grpc_options, "SERVER", tuple(hasty.items()))
    async with live(live_plan()) as cluster:
        for address in (cluster.grpc, cluster.stage_ports[0]):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    while await reader.read(1000):
                        pass
            writer.close()
