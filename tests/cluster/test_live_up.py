"""`stageline up --record`, the official client, Ctrl-C, `stageline run`: the whole way as a user walks it."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from tests.cluster.live import MODEL, live_plan
from tests.cluster.servers import until
from tests.cluster.test_processes import children_of, is_running

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


async def test_the_lines_that_up_ends_with_work_as_they_stand(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(live_plan(2).canonical())
    async with asyncio.timeout(120):
        ports = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
        up = await started("up", str(plan), *ports, "--dilation", "1", "--queue", "77")
        assert up.stdout is not None
        steps: list[str] = []
        while not (steps and " run " in steps[-1]):
            line = (await up.stdout.readline()).decode()
            assert line, (await up.communicate())[1].decode()
            steps += [line.removeprefix("next: ").strip()] if line.startswith("next: ") else []
        assert [step.split()[:2] for step in steps[1:3]] == [["stageline", "load"], ["stageline", "top"]]
        steps[2] += " --once"
        for step in steps[:3]:
            run = await asyncio.create_subprocess_shell(
                step, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            )  # fmt: skip
            said = (await run.communicate())[0].decode()
            assert run.returncode == 0, (step, said)
            assert "error" not in said.split("\n")[0]
        up.send_signal(signal.SIGTERM)
        assert await up.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["starting", "first line", "stopping"])
async def test_a_signal_at_any_moment_ends_up_well(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(live_plan(2).canonical())
    async with asyncio.timeout(60):
        up = await started("up", str(plan), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
        assert up.stdout is not None

        async def begun() -> bool:
            return bool(children_of(up.pid))

        await until(begun)
        if moment != "starting":
            await up.stdout.readexactly(1)
        children = children_of(up.pid)
        up.send_signal(number)
        if moment == "stopping":
            while up.returncode is None:  # as long as it lasts
                with contextlib.suppress(ProcessLookupError):
                    os.kill(up.pid, number)  # send_signal would look whether it has ended, and take its exit code away
                await asyncio.sleep(0.005)
        _, errors = await up.communicate()
        assert up.returncode == 0, errors.decode()
        assert "Traceback" not in errors.decode()

        async def gone() -> bool:
            return not any(is_running(pid) for pid in children)

        await until(gone)
