"""A cluster of local processes to measure, and what it has cost."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.live.client import ready
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.cluster.process import Child
from stageline.plan.schema import Plan
from stageline.runtime.logs import say
from stageline.testing import uniform_plan

STAGES = 8


def chain(service_ns: int, credits_: int) -> Plan:
    """Eight equal stages, 30 us apart, with KV for everybody."""
    return uniform_plan(
        STAGES, service_ns=service_ns, token_ns=200, latency_ns=30_000, bytes_per_s=50 * 10**9, bytes_per_token=8192,
        microbatch=64, credits=credits_, batched_tokens=8192,
    )  # fmt: skip


@asynccontextmanager
async def live_cluster(plan: Plan, *flags: str) -> AsyncIterator[LocalCluster]:
    """A cluster whose door takes requests. `flags` are the router's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_bytes(plan.canonical())
        options = LocalOptions(restart=False, router_flags=("--http-port=0", *flags))
        async with LocalCluster(plan, path, options, say) as up:
            await up.healthy()
            await ready(up.router_endpoints.http)
            yield up


def cpu_s(up: LocalCluster) -> dict[str, float]:
    """CPU time so far, by party (Linux)."""
    assert up.router is not None
    return {"client": _cpu_s(os.getpid()), "router": _child_s(up.router), "stages": sum(map(_child_s, up.stages))}


def _child_s(child: Child) -> float:
    assert child.pid is not None
    return _cpu_s(child.pid)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
