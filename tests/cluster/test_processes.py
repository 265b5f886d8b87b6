"""Local clusters of real processes: agreement, crashes, and nobody left behind."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from stageline.cluster.client_run import run_at, run_on_throwaway
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.errors import RunFailed, Unavailable
from stageline.testing import ListWorkload, Recorder
from stageline.wire.router_client import RouterClient, RunOrder, WorkloadSpec
from stageline.workload import open_workload
from tests.cluster.plans import small_plan, some_requests
from tests.cluster.servers import until

PLAN = small_plan(3, route=(0, 1, 2, 1))
RSS_LIMIT_BYTES = 60 << 20


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_bytes(PLAN.canonical())
    return path


@contextlib.asynccontextmanager
async def local(path: Path, **options: object):
    """A healthy local cluster, and what it said about crashes."""
    crashes: list[str] = []
    async with asyncio.timeout(90), LocalCluster(PLAN, path, LocalOptions(**options), crashes.append) as servers:
        await servers.healthy()
        yield servers, crashes


async def run(servers: LocalCluster, requests, *, wait_s: float = 0.0):
    """One run; totals and what was seen."""
    seen = Recorder()
    order = RunOrder(plan_digest=PLAN.digest(), scheduling=Scheduling(), seed=3)
    totals, _ = await run_at(servers.address, order, ListWorkload(requests), seen, wait_s=wait_s)
    return totals, seen


def expected(requests):
    seen = Recorder()
    return inprocess.run(PLAN, Scheduling(), ListWorkload(requests), seed=3, observer=seen), seen


async def started(servers: LocalCluster) -> None:
    """Returns when a run has got somewhere."""
    async with RouterClient(servers.address) as client:

        async def moving() -> bool:
            return (await client.status()).progress.now_ns > 0

        await until(moving)


async def test_a_run_is_equal_and_stages_stay_small(plan_path):
    requests = some_requests(100)
    async with local(plan_path) as (servers, crashes):
        totals, seen = await run(servers, requests)
        sizes = {child.name: resident_bytes(child.pid) for child in servers.stages}
    wanted, wanted_seen = expected(requests)
    assert totals == wanted
    assert sorted(seen.tokens) == sorted(wanted_seen.tokens)
    assert not crashes
    assert max(sizes.values()) <= RSS_LIMIT_BYTES, sizes


async def test_a_closed_loop_is_made_by_the_router(plan_path):
    spec = WorkloadSpec(text="closed:users=3,requests=20,input=10,output=4", seed=5)
    order = RunOrder(plan_digest=PLAN.digest(), scheduling=Scheduling(), seed=5, spec=spec)
    wanted_seen, seen = Recorder(), Recorder()
    wanted = inprocess.run(PLAN, Scheduling(), open_workload(spec.text, seed=5), seed=5, observer=wanted_seen)
    workload = open_workload(spec.text, seed=5)
    async with local(plan_path) as (servers, _):
        totals, _ = await run_at(servers.address, order, workload, seen)
    assert totals == wanted
    assert seen.requests == wanted_seen.requests
    assert workload.counts.accepted == 20


async def test_a_killed_stage_is_named_and_comes_back(plan_path):
    async with local(plan_path) as (servers, crashes):
        victim = servers.stages[1]
        task = asyncio.create_task(run(servers, some_requests(300, 300)))
        await started(servers)
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(RunFailed, match=r"stage 1 \(stage-1\)"):
            async with asyncio.timeout(10):
                await task
        totals, _ = await run(servers, some_requests(), wait_s=30)
    assert totals == expected(some_requests())[0]
    assert crashes == ["stage 1 (stage-1) ended with signal SIGKILL"]


async def test_a_killed_router_comes_back_on_its_own_ports(plan_path):
    async with local(plan_path, router_flags=("--http-port=0", "--dilation=100")) as (servers, crashes):
        before, pid = servers.router_endpoints, servers.router.pid
        assert before.http
        os.kill(pid, signal.SIGKILL)

        async def back() -> bool:
            return servers.router.pid != pid and servers.router_endpoints is not before

        await until(back)
        await servers.healthy()
        assert servers.router_endpoints == before
        async with aiohttp.ClientSession() as session, session.get(f"http://{before.http}/health") as reply:
            assert reply.status == 200
    assert crashes == ["the router ended with signal SIGKILL"]


async def test_a_frozen_stage_ends_a_run_within_the_deadline(plan_path):
    """It keeps its connections; only its silence tells."""
    async with local(plan_path, router_flags=("--no-live", "--stage-deadline=2s")) as (servers, _):
        task = asyncio.create_task(run(servers, some_requests(500, 300)))
        await started(servers)
        pid = servers.stages[1].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(RunFailed, match=r"stage 1 \(stage-1\).* has not answered for 2 s"):
                async with asyncio.timeout(10):
                    await task
        finally:
            os.kill(pid, signal.SIGCONT)
        totals, _ = await run(servers, some_requests(), wait_s=30)
    assert totals == expected(some_requests())[0]


async def test_a_server_whose_port_is_taken_for_a_while_comes_back(plan_path):
    async with local(plan_path) as (servers, crashes):
        victim = servers.stages[1]
        host, _, port = victim.endpoints.grpc.rpartition(":")
        os.kill(victim.pid, signal.SIGKILL)

        async def hold() -> bool:
            with contextlib.suppress(OSError):
                holder.bind((host, int(port)))
                holder.listen()
                return True
            return False

        async def refused() -> bool:
            return len(crashes) > 1

        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await until(hold)
            await until(refused)
        totals, _ = await run(servers, some_requests(), wait_s=30)
        assert victim.endpoints.grpc == f"{host}:{port}"
    assert totals == expected(some_requests())[0]
    assert crashes[:2] == [f"stage 1 (stage-1) ended with {how}" for how in ("signal SIGKILL", "exit code 2")]


async def test_ports_are_none_that_outgoing_connections_get(plan_path):
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])  # noqa: ASYNC240 - a test
    async with local(plan_path, router_flags=("--http-port=0", "--dilation=100")) as (servers, _):
        ends = [servers.router_endpoints, *(child.endpoints for child in servers.stages)]
    ports = [int(a.rpartition(":")[2]) for end in ends for a in (end.grpc, end.metrics, end.http) if a]
    assert len(ports) == len(set(ports)) == 9
    assert max(ports) < low


async def test_a_stopped_process_changes_nothing(plan_path):
    requests = some_requests(50, 40)
    async with local(plan_path) as (servers, _):
        task = asyncio.create_task(run(servers, requests))
        await started(servers)
        pid = servers.stages[2].pid
        os.kill(pid, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(1.0, os.kill, pid, signal.SIGCONT)
        totals, _ = await task
    assert totals == expected(requests)[0]


async def test_without_restart_the_cluster_says_who_ended(plan_path):
    async with local(plan_path, restart=False) as (servers, _):
        os.kill(servers.stages[0].pid, signal.SIGKILL)
        assert await servers.broken == "stage 0 (stage-0) ended with signal SIGKILL"
        with pytest.raises(Unavailable, match="ended with signal SIGKILL"):
            await servers.healthy()


async def test_a_port_in_use_is_refused(plan_path):
    holder = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = holder.sockets[0].getsockname()[1]
    try:
        code, _, errors = await finished(await up(plan_path, "--grpc-port", str(port)))
    finally:
        holder.close()
    assert code == 2
    assert f"gRPC port 127.0.0.1:{port} can't be bound" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -9)])
async def test_nobody_is_left_behind(plan_path, number, code):
    async with asyncio.timeout(60):
        process = await up(plan_path, "--grpc-port", "0", "--metrics-port", "0")
        lines = [(await process.stdout.readline()).decode() for _ in range(6)]
        children = children_of(process.pid)
        assert len(children) == 4, lines
        process.send_signal(number)
        assert (await finished(process))[0] == code

        async def gone() -> bool:
            return not any(is_running(pid) for pid in children)

        await until(gone)


async def test_fail_fast_stops_all(plan_path):
    async with asyncio.timeout(60):
        process = await up(plan_path, "--grpc-port", "0", "--metrics-port", "0", "--fail-fast")
        while "stageline run" not in (await process.stdout.readline()).decode():
            pass
        children = children_of(process.pid)
        os.kill(children[0], signal.SIGKILL)
        code, _, errors = await finished(process)
    assert code == 1
    assert "--fail-fast" in errors
    assert not [pid for pid in children if is_running(pid)]


async def up(path: Path, *flags: str) -> asyncio.subprocess.Process:
    """`stageline up` as a user starts it."""
    program = [sys.executable, "-c", "from stageline.cli.main import main; main()"]
    command = [*program, "up", str(path), "--http-port", "0", *flags]
    return await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )


async def finished(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    out, errors = await process.communicate()
    return process.returncode, out.decode(), errors.decode()


def children_of(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Whether a process is there and not a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_an_interrupted_run_ends_in_silence(plan_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Servers that lose each other say so; when it is the user who ends the run there is nothing to say."""
    seen = Recorder()
    order = RunOrder(plan_digest=PLAN.digest(), scheduling=Scheduling(), seed=3)
    workload = ListWorkload(some_requests(20_000))
    run = asyncio.ensure_future(run_on_throwaway(PLAN, order, workload, seen, LocalOptions(restart=False)))

    async def moving() -> bool:
        return bool(seen.requests) or run.done()

    async with asyncio.timeout(90):
        await until(moving)
        assert not run.done()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert capfd.readouterr().err == ""
