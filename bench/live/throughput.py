"""Streamed chunks per second: 8 stages, a plan faster than the host, 64 users, client included.

Counted is what the clients received between two moments of a run in which all users stream all the time. CPU per chunk
is that of the client, the router and all stages: on a host with nothing else to do, `chunks_per_cpu_s` times its cores
is the most that could be reached. `cores` says how much CPU all parties got: when it is far below the number of
cores, either another process took it or one party waits for another. Tokens of one stream that are due together leave
in one write: `chunks_per_read` is what the clients see of that.
"""

import asyncio
import contextlib
import os
import time

import msgspec

from bench.live.client import Client, connect, request_of
from bench.live.cluster import chain, cpu_s, live_cluster
from stageline.cluster.local import LocalCluster

USERS, PROMPT_TOKENS, OUTPUT_TOKENS = 64, 32, 300
SERVICE_NS, CREDITS = 300_000, 1
WARM_S = 2.0


async def throughput(seconds: float, rounds: int, credits_: int = CREDITS, service_ns: int = SERVICE_NS) -> None:
    """A line of figures per round."""
    async with live_cluster(chain(service_ns, credits_)) as up:
        counted = _Counted()
        load = asyncio.create_task(_load(up.router_endpoints.http, counted))
        await asyncio.sleep(WARM_S)
        for _ in range(rounds):
            print(msgspec.json.encode(await _round(up, counted, seconds, load)).decode(), flush=True)
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await load


class _Counted:
    """Chunks received so far."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.replies = 0

    @property
    def chunks(self) -> int:
        """With a token, of replies that have ended and of those under way."""
        return self.replies * OUTPUT_TOKENS + sum(len(c.reply.times_s) for c in self.clients if not c.reply.usage)

    @property
    def reads(self) -> int:
        """Of sockets."""
        return sum(c.reads for c in self.clients)


async def _load(address: str, counted: _Counted) -> None:
    request = request_of(PROMPT_TOKENS, OUTPUT_TOKENS)

    async def user() -> None:
        client = await connect(address)
        counted.clients.append(client)
        while True:
            reply = await client.ask(request)
            assert len(reply.times_s) == OUTPUT_TOKENS, f"{len(reply.times_s)} chunks came"
            counted.replies += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(USERS):
            group.create_task(user())


async def _round(up: LocalCluster, counted: _Counted, seconds: float, load: asyncio.Task[None]) -> dict[str, object]:
    spent_s, began_s, had, had_reads = cpu_s(up), time.perf_counter(), counted.chunks, counted.reads
    await asyncio.wait({load}, timeout=seconds)
    if load.done():
        load.result()
    wall_s, chunks = time.perf_counter() - began_s, counted.chunks - had
    cost_s = {party: value - spent_s[party] for party, value in cpu_s(up).items()}
    return {
        "chunks_per_s": round(chunks / wall_s),
        "chunks_per_read": round(chunks / (counted.reads - had_reads), 2),
        "chunks_per_cpu_s": round(chunks / sum(cost_s.values())),
        "cpu_us_per_chunk": {party: round(value / chunks * 1e6, 1) for party, value in cost_s.items()},
        "cores": round(sum(cost_s.values()) / wall_s, 2),
        "load_average": round(os.getloadavg()[0], 1),
    }
