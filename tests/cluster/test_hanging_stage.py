"""A stage process that hangs, stopped with SIGSTOP: noticed, named, given up, and found again."""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp

from stageline.cluster.local import LocalCluster, LocalOptions
from tests.cluster.live import live_plan
from tests.cluster.servers import until

ASK = {"prompt": "x", "max_tokens": 200, "stream": True, "stream_options": {"include_usage": True}}


class Hanging:
    """A cluster of processes under load, and what it says."""

    def __init__(self, servers: LocalCluster, session: aiohttp.ClientSession) -> None:
        self.servers, self._session = servers, session
        self.url = f"http://{servers.router_endpoints.http}"

    async def ready(self) -> tuple[int, str]:
        """Status and body of /ready."""
        async with self._session.get(f"{self.url}/ready") as reply:
            return reply.status, await reply.text()

    async def metric(self, pattern: str) -> float:
        """The first sample whose line begins like that."""
        async with self._session.get(f"{self.url}/metrics") as reply:
            text = await reply.text()
        found = re.search(rf"^{pattern}\S* (\S+)$", text, re.MULTILINE)
        assert found, pattern
        return float(found[1])

    async def becomes(self, status: int) -> str:
        """Waits for that status of /ready; returns its body."""

        async def there() -> bool:
            return (await self.ready())[0] == status

        await until(there)
        return (await self.ready())[1]

    async def reply(self) -> list[dict]:
        """The parts of one streamed reply."""
        async with self._session.post(f"{self.url}/v1/completions", json=ASK) as reply:
            lines = [line[6:] async for line in reply.content if line.startswith(b"data: {")]
        return [json.loads(line) for line in lines]


@contextlib.asynccontextmanager
async def cluster(tmp_path: Path, deadline: str) -> AsyncIterator[Hanging]:
    """Three stages at dilation 10."""
    plan, path = live_plan(), tmp_path / "plan.json"
    path.write_bytes(plan.canonical())
    options = LocalOptions(router_flags=("--http-port=0", "--dilation=10", f"--stage-deadline={deadline}"))
    async with asyncio.timeout(90), LocalCluster(plan, path, options, lambda _: None) as servers:
        await servers.healthy()
        async with aiohttp.ClientSession() as session:
            hanging = Hanging(servers, session)
            await hanging.becomes(200)
            yield hanging


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_stage_that_comes_back_in_time_costs_only_slip(tmp_path: Path) -> None:
    async with cluster(tmp_path, "60s") as hanging:
        calm = (await hanging.reply())[-1]["usage"]
        task = asyncio.create_task(hanging.reply())

        async def flowing() -> bool:
            return await hanging.metric("vllm:generation_tokens_total") > 210

        await until(flowing)
        with stopped(hanging.servers.stages[1].pid):
            reason = await hanging.becomes(503)
            assert "stage 1" in reason

            async def named() -> bool:
                return await hanging.metric('stageline_stage_overdue_seconds{replica="0",stage="1"') >= 1

            await until(named)
            slip_s = await hanging.metric("stageline_clock_slip_seconds_total")
        usage = (await task)[-1]["usage"]
        await hanging.becomes(200)
        assert await hanging.metric("stageline_clock_slip_seconds_total") >= slip_s > 0.5
        assert usage["e2e_s"] < calm["e2e_s"] * 1.05
        assert usage["completion_tokens"] == 200


async def test_a_stage_that_hangs_past_the_deadline_ends_like_a_crash(tmp_path: Path) -> None:
    async with cluster(tmp_path, "2s") as hanging:
        task = asyncio.create_task(hanging.reply())
        with stopped(hanging.servers.stages[1].pid):
            async with asyncio.timeout(15):
                error = (await task)[-1]["error"]["message"]
            assert "stage 1" in error
            assert "has not answered for 2 s" in error

            async def down() -> bool:
                return await hanging.metric('stageline_stage_up{replica="0",stage="1"') == 0

            await until(down)
            assert await hanging.metric("stageline_requests_total") == 1
            assert await hanging.metric("stageline_requests_failed_total") == 1
            assert await hanging.metric("stageline_requests_running") == 0
            assert await hanging.metric('vllm:request_success_total{engine="0",finished_reason="error"') == 1
            assert await hanging.metric("vllm:num_requests_running") == 0
        await hanging.becomes(200)
        assert (await hanging.reply())[-1]["usage"]["completion_tokens"] == 200
