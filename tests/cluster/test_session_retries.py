"""`--session-retries`: a stage is killed under live streams; they pause and go on, and every token comes once (L8')."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.runtime.samples import Samples, parse
from tests.cluster.live import live_plan, recorded_digest, replayed_digest
from tests.cluster.servers import until

TOKENS, USERS = 300, 6


class Processes:
    """A cluster of local processes, and its clients."""

    def __init__(self, servers: LocalCluster, session: aiohttp.ClientSession) -> None:
        self.servers, self.session = servers, session
        self.came = 0  # tokens of all streams

    async def stream(self, number: int) -> dict[str, object]:
        """The usage of one stream of TOKENS tokens, all of which must come; an error is one of the test."""
        seen, usage = 0, {}
        ask = {"prompt": [1] * (5 + number), "max_tokens": TOKENS, "stream": True}
        ask["stream_options"] = {"include_usage": True}
        async with self.session.post(f"http://{self.servers.router_endpoints.http}/v1/completions", json=ask) as reply:
            assert reply.status == 200, await reply.text()
            async for line in reply.content:
                if line.startswith(b"data: {"):
                    part = json.loads(line[6:])
                    assert "error" not in part, part
                    self.came += bool(part.get("choices"))
                    seen += bool(part.get("choices"))
                    usage = part.get("usage") or usage
        assert seen == TOKENS
        return usage

    async def streams(self) -> "list[asyncio.Task[dict[str, object]]]":
        """The streams of all users, once tokens of each could have come."""
        tasks = [asyncio.create_task(self.stream(number)) for number in range(USERS)]
        await self.more(10 * USERS)
        return tasks

    async def more(self, tokens: int) -> None:
        """Return when so many more have come."""
        wanted = self.came + tokens

        async def look() -> bool:
            return self.came >= wanted

        await until(look)

    async def metrics(self) -> Samples:
        """Of the router."""
        async with self.session.get(f"http://{self.servers.router_endpoints.metrics}/metrics") as reply:
            return parse(await reply.read())

    async def ready(self, *, wanted: bool = True) -> None:
        """Waits for /ready."""

        async def look() -> bool:
            async with self.session.get(f"http://{self.servers.router_endpoints.http}/ready") as reply:
                return (reply.status == 200) is wanted

        await until(look)

    async def says(self, text: str) -> None:
        """Waits until /ready gives such a reason."""

        async def look() -> bool:
            async with self.session.get(f"http://{self.servers.router_endpoints.http}/ready") as reply:
                return text in await reply.text()

        await until(look)

    async def shows(self, name: str, value: float) -> None:
        """Waits until a metric has a value."""

        async def look() -> bool:
            return (await self.metrics()).total(name) == value

        await until(look)


@asynccontextmanager
async def processes(folder: Path, *flags: str, **shape: object) -> AsyncIterator[Processes]:
    """A live cluster that is ready; its session is over afterwards."""
    plan, path = live_plan(**shape), folder / "plan.json"
    path.write_bytes(plan.canonical())
    own = ("--http-port=0", "--dilation=1", "--stage-deadline=1s", f"--record={folder / 'session.jsonl'}", *flags)
    options = LocalOptions(router_flags=own, log_level="warning")
    async with asyncio.timeout(120), LocalCluster(plan, path, options, lambda _: None) as servers:
        await servers.healthy()
        async with aiohttp.ClientSession() as session:
            found = Processes(servers, session)
            await found.ready()
            yield found


COUNTED = ("requests", "requests_finished", "requests_failed", "live_retries", "live_failures")


async def counts(cluster: Processes) -> tuple[float, ...]:
    """What the router has counted, in the order of COUNTED."""
    page = await cluster.metrics()
    return tuple(page.total(f"stageline_{name}_total") for name in COUNTED)


EVERYTHING = '{"front_end_ns": 5000000, "prefix_cache": true, "kv": "grow", "speculate": 3, "acceptance_ppm": 700000}'


@pytest.mark.parametrize(
    ("shape", "scheduling"),
    [({}, EVERYTHING), ({"replicas": 2}, "{}"), ({"route": (0, 1, 2, 1)}, "{}")],
    ids=["features", "replicas", "revisits"],
)
async def test_streams_outlive_a_stage(tmp_path: Path, shape: dict[str, object], scheduling: str) -> None:
    async with processes(tmp_path, "--session-retries=3", f"--scheduling={scheduling}", **shape) as cluster:
        streams = await cluster.streams()
        os.kill(cluster.servers.stages[1].pid, signal.SIGKILL)
        await asyncio.gather(*streams)
        assert await counts(cluster) == (USERS, USERS, 0, 1, 0)
        after = await cluster.metrics()
    assert after.total("vllm:generation_tokens_total") == USERS * TOKENS
    assert after.total("stageline_clock_slip_seconds_total") > 0.5  # a server that starts again takes longer
    path = tmp_path / "session.jsonl"
    assert recorded_digest(path) == replayed_digest(live_plan(**shape), path)


async def test_a_second_death_a_hang_and_a_client_that_leaves_meanwhile(tmp_path: Path) -> None:
    async with processes(tmp_path, "--session-retries=3") as cluster:
        streams = await cluster.streams()
        os.kill(cluster.servers.stages[0].pid, signal.SIGKILL)
        await cluster.ready(wanted=False)
        leaver = streams.pop()
        leaver.cancel()
        await cluster.ready()
        hanging = cluster.servers.stages[2].pid
        os.kill(hanging, signal.SIGSTOP)
        await cluster.ready(wanted=False)
        await cluster.says("done again")  # after the deadline
        os.kill(hanging, signal.SIGCONT)
        await asyncio.gather(*streams)
        await cluster.shows("stageline_live_requests", 0)
        assert await counts(cluster) == (USERS, USERS - 1, 1, 2, 0)
    path = tmp_path / "session.jsonl"
    assert recorded_digest(path) == replayed_digest(live_plan(), path)


async def test_after_the_last_retry_streams_end_with_the_reason(tmp_path: Path) -> None:
    async with processes(tmp_path, "--session-retries=1") as cluster:
        streams = await cluster.streams()
        os.kill(cluster.servers.stages[0].pid, signal.SIGKILL)
        await cluster.ready(wanted=False)
        await cluster.ready()
        os.kill(cluster.servers.stages[1].pid, signal.SIGKILL)
        ends = await asyncio.gather(*streams, return_exceptions=True)
        assert all("the live session broke off: stage 1 (stage-1)" in str(end) for end in ends), ends
        await cluster.ready()
        assert await counts(cluster) == (USERS, 0, USERS, 1, 1)
    assert "stage 1 (stage-1)" in (tmp_path / "session.jsonl").read_text().splitlines()[-1]
