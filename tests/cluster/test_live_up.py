"""`stageline up --record`, the official client, Ctrl-C, `stageline run`: the whole way as a user walks it."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from openai import AsyncOpenAI

from tests.cluster.live import MODEL, live_plan

COMMAND = [sys.executable, "-c", "from stageline.cli.main import main; main()"]


async def started(*words: str) -> asyncio.subprocess.Process:
    """The `stageline` command."""
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )


async def door_of(up: asyncio.subprocess.Process) -> str:
    """Waits until the cluster stands; the URL of its door."""
    assert up.stdout is not None
    url = ""
    while not url:
        line = (await up.stdout.readline()).decode()
        assert line, (await up.communicate())[1].decode()
        if line.startswith("api "):
            url = line.split()[1]
    return url


async def test_record_and_replay_from_the_command_line(tmp_path: Path) -> None:
    plan, session = tmp_path / "plan.json", tmp_path / "session.jsonl"
    plan.write_bytes(live_plan(2).canonical())
    async with asyncio.timeout(120):
        ports = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
        up = await started("up", str(plan), *ports, "--dilation", "2", "--record", str(session), "--kv", "grow")
        url = await door_of(up)
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=20) as client:
            replies = await asyncio.gather(
                *(client.completions.create(model=MODEL, prompt="x", max_tokens=9) for _ in range(5))
            )
        up.send_signal(signal.SIGINT)
        _, errors = await up.communicate()
        replay = await started("run", str(plan), "--workload", str(session))
        _, said = await replay.communicate()
    assert [r.usage.completion_tokens for r in replies] == [9] * 5
    assert up.returncode == 0, errors
    assert replay.returncode == 0, said
    assert "the same digest as the recorded session" in said.decode()
