"""Resources of an idle cluster of 59 stage servers and a router: `python -m bench.standing [TRACE]`, JSON on stdout.

Seconds until all are healthy, CPU of all of them while idle, and the resident memory of the largest stage, which with a
TRACE is measured after a run of its first 500 requests. Exit code 1 if a target is missed.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from bench.core import wafers
from stageline.cluster.client_run import run_at
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.engine.settings import Scheduling
from stageline.testing import Ignoring
from stageline.wire.router_client import RunOrder
from stageline.workload import open_workload

REQUESTS, RATE_SCALE = 500, "150"
IDLE_S = 20.0
HEALTHY_S, STAGE_MB, IDLE_SHARE = 40.0, 60.0, 0.05  # targets


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements, and whether they meet their targets."""

    healthy_s: float
    stage_mb: float  # the largest
    idle_share_of_a_core: float
    run_requests: int = 0
    run_wall_s: float = 0.0
    run_visits_per_s: int = 0
    good: bool


def _cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measured(folder: Path, trace: str | None) -> Standing:
    """Start the cluster, measure it idle, and run the trace."""
    plan = wafers(placement="by-kind", layer_bytes="nominal")
    path = folder / "wafers.json"
    path.write_bytes(plan.canonical())
    started = time.perf_counter()
    async with LocalCluster(plan, path, LocalOptions(restart=False), print) as up:
        await up.healthy()
        healthy_s = time.perf_counter() - started
        stages = [child.pid for child in up.stages if child.pid]
        servers = [*stages, *([up.router.pid] if up.router and up.router.pid else [])]
        before = sum(map(_cpu_s, servers))
        await asyncio.sleep(IDLE_S)
        share = (sum(map(_cpu_s, servers)) - before) / IDLE_S
        visits, wall_s = 0, 0.0
        if trace:
            workload = open_workload(trace, rate_scale=RATE_SCALE, requests=REQUESTS)
            order = RunOrder(plan_digest=plan.digest(), scheduling=Scheduling(), seed=0, tokens=False)
            totals, cost = await run_at(up.address, order, workload, Ignoring())
            visits, wall_s = totals.stage_visits, cost.wall_ns / 1e9
        stage_mb = max(map(_resident_mb, stages))
    return Standing(
        healthy_s=round(healthy_s, 1),
        stage_mb=round(stage_mb, 1),
        idle_share_of_a_core=round(share, 4),
        run_requests=REQUESTS if trace else 0,
        run_wall_s=round(wall_s, 1),
        run_visits_per_s=round(visits / wall_s) if trace else 0,
        good=healthy_s <= HEALTHY_S and stage_mb <= STAGE_MB and share <= IDLE_SHARE,
    )


def main(trace: str | None = None) -> int:
    """Measure; returns 1 if a target is missed."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        standing = runner.run(measured(Path(folder), trace))
    print(msgspec.json.format(msgspec.json.encode(standing), indent=2).decode())
    return int(not standing.good)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
