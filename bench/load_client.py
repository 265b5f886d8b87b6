"""CPU time of the load client per streamed chunk, over that of a bare reader of the same bytes.

A server process streams ready-made chunks over keep-alive connections; the client process runs `concurrency` users in a
closed loop. `flood`: the server sends as fast as it can, so that a slow client finds several chunks in one read.
`paced`: every stream pauses between chunks, so that each arrives alone, the worst case.

Compare the ratios of CPU per chunk: the bare reader only counts events. Chunks per core and second is 1 / CPU per
chunk, the rate at which one core reads if it does nothing else.

    python -m bench.load_client [--concurrency 64]
"""

import argparse
import asyncio
import subprocess
import sys
import time
from typing import cast

import msgspec
import uvloop

from stageline.load.clock import WallClock
from stageline.load.options import LoadOptions
from stageline.load.run import run_load
from stageline.workload import open_workload

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
_CHUNK = b'data: {"id":"cmpl-0123456789abcdef","object":"text_completion","created":1,"model":"bench","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}\n\n'  # noqa: E501


class ClientCost(msgspec.Struct):
    """What one client needed."""

    chunks: int
    cpu_ns: int
    wall_ns: int

    def text(self, name: str) -> str:
        """One line of output."""
        per_chunk_us = self.cpu_ns / self.chunks / 1000
        rate, most = self.chunks * 1e9 / self.wall_ns, self.chunks * 1e9 / self.cpu_ns
        return f"{name:18s} {per_chunk_us:8.1f} us CPU/chunk  {most:10,.0f} chunks/core/s  {rate:10,.0f} chunks/s here"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Case(msgspec.Struct, frozen=True):
    """How much the server streams, and how fast."""

    name: str
    tokens: int
    requests: int
    pause_s: float


CASES = (Case("flood", 256, 640, 0.0), Case("paced", 64, 256, 0.02))


class _Server(asyncio.Protocol):
    """Answers every POST with `tokens` chunks, one per connection and event-loop iteration."""

    def __init__(self, tokens: int, pause_s: float) -> None:
        self._tokens, self._pause_s = tokens, pause_s
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """A request may arrive in several segments; it ends with the closing brace of its body."""
        assert self._transport is not None
        if data.startswith(b"GET"):
            body = b'{"data":[{"id":"bench"}]}' if b"/models" in data[:40] else b"{}"
            self._transport.write(_HEAD % b"application/json" + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        elif data.endswith(b"}"):
            head = _HEAD % b"text/event-stream" + b"Transfer-Encoding: chunked\r\n\r\n"
            self._transport.write(head)
            self._soon(self._tokens)

    def _soon(self, left: int) -> None:
        loop = asyncio.get_running_loop()
        if self._pause_s:
            loop.call_later(self._pause_s, self._next, left)
        else:
            loop.call_soon(self._next, left)

    def _next(self, left: int) -> None:
        assert self._transport is not None
        if left:
            self._transport.write(_framed(_CHUNK))
            self._soon(left - 1)
        else:
            usage = b'data: {"choices":[],"usage":{"prompt_tokens":64,"completion_tokens":%d}}\n\n' % self._tokens
            self._transport.write(_framed(usage + b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def _serve(tokens: int, pause_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Server(tokens, pause_s), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _bare(port: int, users: int, requests: int) -> ClientCost:
    """Read the same streams and only count their events."""
    chunks, left = 0, requests

    async def user() -> None:
        nonlocal chunks, left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0:
            left -= 1
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            tail = b""
            while not tail.endswith(b"0\r\n\r\n"):
                data = await reader.read(1 << 16)
                chunks += data.count(b'"text"')
                tail = data[-5:]
        writer.close()

    cpu_ns, wall_ns = time.process_time_ns(), time.monotonic_ns()
    await asyncio.gather(*(user() for _ in range(users)))
    return ClientCost(chunks, time.process_time_ns() - cpu_ns, time.monotonic_ns() - wall_ns)


async def _load_client(port: int, users: int, requests: int, tokens: int) -> ClientCost:
    """Run the load client."""
    options = LoadOptions(url=f"http://127.0.0.1:{port}", connections=users)
    workload = open_workload(f"closed:users={users},requests={requests},input=64,output={tokens}")
    cpu_ns, wall_ns = time.process_time_ns(), time.monotonic_ns()
    result = await run_load(options, workload, WallClock(), lambda progress: None)
    cost = ClientCost(result.summary.chunks, time.process_time_ns() - cpu_ns, time.monotonic_ns() - wall_ns)
    if result.summary.calls["finished"] != requests:
        raise SystemExit(f"only {result.summary.calls['finished']} of {requests} calls finished")
    return cost


def measure(case: Case, users: int) -> None:
    """Measure one case with both clients, one after the other."""
    flags = ["--serve", str(case.tokens), str(case.pause_s)]
    server = subprocess.Popen([sys.executable, "-m", "bench.load_client", *flags], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        bare = uvloop.run(_bare(port, users, case.requests))
        load = uvloop.run(_load_client(port, users, case.requests, case.tokens))
    finally:
        server.kill()
        server.wait()
    print(bare.text(f"{case.name}, bare reader"))
    print(load.text(f"{case.name}, load client"))
    print(f"{case.name}, ratio {load.cpu_ns / load.chunks / (bare.cpu_ns / bare.chunks):.1f}")


def main() -> None:
    """Measure all cases, or with --serve be their server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.serve:
        uvloop.run(_serve(int(flags.serve[0]), float(flags.serve[1])))
    for case in CASES:
        measure(case, flags.concurrency)


if __name__ == "__main__":
    main()
