"""A long live session with clients of several kinds, recorded and replayed: is the digest the same?

Clients arrive at a Poisson rate of wall time. By turns the official client streams a chat; it streams a completion with
two choices; it asks for a whole document; it leaves in mid-stream; it gives up before the first token; a plain socket
vanishes with a reset after its first chunk. Prompts of 16 to 400 tokens, outputs of 8 to 160, both drawn with a seed.
"""

import asyncio
import json
import random
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from openai import AsyncOpenAI

from bench.live.client import request_of
from bench.live.cluster import live_cluster
from stageline.plan.schema import Plan

SEED = 4
_PATIENCE_S = 0.02  # of those who give up before the first token


class Flags(msgspec.Struct, frozen=True):
    """What is asked for; `rate` is per second of wall time."""

    minutes: float
    rate: float
    dilation: str


class Crowd:
    """The clients."""

    def __init__(self, address: str) -> None:
        self.done: Counter[str] = Counter()
        self.tokens = 0
        self._address = address
        self._client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=600)
        self._draw = random.Random(SEED)
        self._kinds = (self._chat, self._choices, self._whole, self._leaves, self._gives_up, self._vanishes)

    async def come(self, flags: Flags) -> None:
        """All of them, until the last has what it wanted."""
        ends_s = time.monotonic() + flags.minutes * 60
        number = 0
        async with self._client, asyncio.TaskGroup() as group:
            while time.monotonic() < ends_s:
                group.create_task(self._one(number))
                number += 1
                await asyncio.sleep(self._draw.expovariate(flags.rate))

    async def _one(self, number: int) -> None:
        kind = self._kinds[number % len(self._kinds)]
        prompt, output = self._draw.randint(16, 400), self._draw.randint(8, 160)
        await kind(" ".join(["word"] * prompt), output)
        self.done[kind.__name__.removeprefix("_")] += 1

    async def _chat(self, prompt: str, output: int) -> None:
        parts = await self._client.chat.completions.create(
            model="", messages=[{"role": "user", "content": prompt}], max_tokens=output, stream=True
        )
        seen = sum([1 async for _ in parts])
        assert seen == output, f"{seen} chunks of {output}"
        self.tokens += seen

    async def _choices(self, prompt: str, output: int) -> None:
        parts = await self._client.completions.create(model="", prompt=prompt, n=2, max_tokens=output, stream=True)
        seen = sum([1 async for _ in parts])
        assert seen == 2 * output, f"{seen} chunks of 2 x {output}"
        self.tokens += seen

    async def _whole(self, prompt: str, output: int) -> None:
        reply = await self._client.completions.create(model="", prompt=prompt, max_tokens=output)
        assert reply.usage and reply.usage.completion_tokens == output
        self.tokens += output

    async def _leaves(self, prompt: str, output: int) -> None:
        parts = await self._client.completions.create(model="", prompt=prompt, max_tokens=output, stream=True)
        seen = 0
        async for _ in parts:
            seen += 1
            if seen == max(1, output // 3):
                break
        await parts.close()

    async def _gives_up(self, prompt: str, output: int) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._client.completions.create(model="", prompt=prompt, max_tokens=output, stream=True)
        except TimeoutError:
            return

    async def _vanishes(self, prompt: str, output: int) -> None:
        host, _, port = self._address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_of(len(prompt.split()), output))
        await reader.readuntil(b"data: ")
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.close()


async def session(plan: Plan, flags: Flags) -> None:
    """One line of figures; SystemExit 1 when a replay gives another digest."""
    with TemporaryDirectory() as folder:
        record, path = Path(folder) / "session.jsonl", Path(folder) / "plan.json"
        path.write_bytes(plan.canonical())
        began_s = time.monotonic()
        async with live_cluster(plan, f"--record={record}", f"--dilation={flags.dilation}") as up:
            crowd = Crowd(up.router_endpoints.http)
            await crowd.come(flags)
            slip_s = await _metric(up.router_endpoints.metrics, "stageline_clock_slip_seconds_total")
            dilation = await _metric(up.router_endpoints.metrics, "stageline_live_dilation")
        minutes = (time.monotonic() - began_s) / 60
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        digest = lines[-1].get("digest", "(none: the session broke off)")
        replays = {engine: _replay(path, record, engine) for engine in ("inprocess", "cluster")}
    figures = {
        "minutes": round(minutes, 1),
        "dilation": dilation,
        "slip_s": round(slip_s, 3),
        "requests": sum("arrival_ns" in line for line in lines),
        "cancelled": sum("cancel" in line for line in lines),
        "clients": dict(crowd.done),
        "tokens_received": crowd.tokens,
        "digest": digest,
        "replays": {engine: found == digest for engine, found in replays.items()},
    }
    print(msgspec.json.encode(figures).decode(), flush=True)
    if set(replays.values()) != {digest}:
        raise SystemExit(1)


def _replay(plan: Path, record: Path, engine: str) -> str:
    command = [sys.executable, "-c", "from stageline.cli.main import main; main()", "run", str(plan)]
    flags = ["--workload", str(record), "--engine", engine, "--json"]
    found = subprocess.run([*command, *flags], check=True, stdout=subprocess.PIPE)
    return str(json.loads(found.stdout)["digest"])


async def _metric(address: str, name: str) -> float:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    lines = (await reader.read()).decode().splitlines()
    writer.close()
    return next(float(line.split()[-1]) for line in lines if line.split(" ")[0] == name)
