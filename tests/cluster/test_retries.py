"""`stageline run --engine cluster` whose servers die: the digest of a run that nothing disturbed, or none (L8')."""

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from tests.cluster.plans import small_plan
from tests.cluster.servers import until
from tests.cluster.test_processes import children_of

WORKLOAD = "poisson:rate=200000,requests=2500,input=20,output=40"
CLOSED = "closed:users=40,requests=2000,input=20,output=40"


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_bytes(small_plan(3, route=(0, 1, 2, 1)).canonical())
    return path


async def command(plan: Path, out: Path, workload: str, *flags: str) -> asyncio.subprocess.Process:
    """`stageline run`."""
    program = [sys.executable, "-c", "from stageline.cli.main import main; main()", "run", str(plan)]
    return await asyncio.create_subprocess_exec(
        *program, "--workload", workload, "-o", str(out), *flags,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip


def role_of(pid: int) -> str:
    """Which server a process is."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2].decode()


async def killed(
    run: asyncio.subprocess.Process, role: str, lines: Path, after: int, number: signal.Signals = signal.SIGKILL
) -> None:
    """Kills one of the run's servers, or sends it another signal, once so many bytes of requests are written."""

    async def there() -> bool:
        written = lines.stat().st_size if lines.exists() else 0  # noqa: ASYNC240 - a test
        return run.returncode is not None or written > after

    await until(there)
    assert run.returncode is None, (await run.communicate())[1].decode()
    os.kill(random.Random(after).choice([pid for pid in children_of(run.pid) if role_of(pid) == role]), number)


def summary_of(out: Path) -> dict:
    return json.loads((out / "summary.json").read_text())


@pytest.mark.parametrize("workload", [WORKLOAD, CLOSED], ids=["open", "closed"])
async def test_a_stage_and_the_router_die_and_nothing_changes(plan_path: Path, tmp_path: Path, workload: str) -> None:
    calm, hurt = tmp_path / "calm", tmp_path / "hurt"
    async with asyncio.timeout(120):
        assert await (await command(plan_path, calm, workload)).wait() == 0
        run = await command(plan_path, hurt, workload, "--engine", "cluster")
        await killed(run, "stage_server", hurt / "requests.jsonl", 20_000)
        await killed(run, "router", hurt / "requests.jsonl", 200_000)
        said = (await run.communicate())[1].decode()
    assert run.returncode == 0, said
    wanted, found = summary_of(calm), summary_of(hurt)
    assert found["digest"] == wanted["digest"]
    assert (found["attempts"], wanted["attempts"], found["complete"]) == (3, 1, True)
    assert (hurt / "requests.jsonl").read_bytes() == (calm / "requests.jsonl").read_bytes()
    assert "attempt 3 begins" in said


async def test_without_retries_the_run_ends_and_says_so(plan_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with asyncio.timeout(60):
        run = await command(plan_path, out, WORKLOAD, "--engine", "cluster", "--retries", "0")
        await killed(run, "stage_server", out / "requests.jsonl", 20_000)
        said = (await run.communicate())[1].decode()
    assert run.returncode == 1
    assert "was lost during the run" in said
    assert (summary_of(out)["complete"], summary_of(out)["digest"]) == (False, None)


async def test_a_stage_that_hangs_for_good_is_replaced(plan_path: Path, tmp_path: Path) -> None:
    calm, hurt = tmp_path / "calm", tmp_path / "hurt"
    async with asyncio.timeout(90):
        assert await (await command(plan_path, calm, WORKLOAD)).wait() == 0
        run = await command(plan_path, hurt, WORKLOAD, "--engine", "cluster", "--stage-deadline", "1s")
        await killed(run, "stage_server", hurt / "requests.jsonl", 20_000, signal.SIGSTOP)
        said = (await run.communicate())[1].decode()
    assert run.returncode == 0, said
    assert summary_of(hurt)["digest"] == summary_of(calm)["digest"]
    assert "has not answered for 1 s and counts as lost" in said


async def test_without_retries_a_stage_that_hangs_ends_the_run(plan_path: Path, tmp_path: Path) -> None:
    out, flags = tmp_path / "out", ("--engine", "cluster", "--stage-deadline", "1s", "--retries", "0")
    async with asyncio.timeout(60):
        run = await command(plan_path, out, WORKLOAD, *flags)
        await killed(run, "stage_server", out / "requests.jsonl", 20_000, signal.SIGSTOP)
        said = (await run.communicate())[1].decode()
    assert run.returncode == 1
    assert "has not answered for 1 s and counts as lost" in said
    assert "did not stop in time" not in said, "a stopped process was waited for"
    assert (summary_of(out)["complete"], summary_of(out)["digest"]) == (False, None)
