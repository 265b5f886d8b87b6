"""CPU time of one hop of a microbatch on a cluster, over that of a bare gRPC echo of frames of the same size.

    python -m bench.cluster            all cases, JSON on stdout
    python -m bench.cluster lone wide  some of them

CPU time of router and stages / (microbatches x links). The echo is a ring of as many processes, which keeps as many
messages in flight as the cluster does frames; it uses Stageline's channel options and gRPC's default environment, and
is measured right after the cluster.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import msgspec
import uvloop

from bench.core import wafers
from bench.echo import measure
from stageline.cluster.client_run import run_at
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.runtime.logs import say
from stageline.testing import Ignoring, uniform_plan
from stageline.wire.router_client import RunCost, RunOrder
from stageline.workload import open_workload

ECHO_HOPS = 400
SERVICE_NS = 30_000


class Case(msgspec.Struct, frozen=True):
    """One case; `stages` 0 is the 59-wafer route, and `target` the largest good ratio."""

    name: str
    stages: int
    credits: int
    requests: int
    output_tokens: int
    window: int
    target: float


CASES = (
    Case("lone", 8, 1, 1, 1500, 2, 1.5),
    Case("wide", 8, 64, 512, 64, 0, 0.2),
    Case("long", 59, 64, 512, 32, 0, 0.2),
    Case("wafers", 0, 64, 512, 32, 0, 0.6),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the result."""

    case: str
    cpu_us_per_hop: float
    echo_us_per_hop: float
    ratio: float
    target: float
    good: bool
    microbatches: int
    microbatches_per_frame: float
    frames_per_hop: float
    promise_share: float
    hops_per_s: float


def chain(stages: int, in_flight: int) -> Plan:
    """Equal stages in a row, with hops long enough to keep `in_flight` microbatches in flight."""
    latency_ns = max(2000, SERVICE_NS * (in_flight - stages) // (stages + 1))
    return uniform_plan(
        stages, service_ns=SERVICE_NS, token_ns=10, latency_ns=latency_ns, bytes_per_s=300 * 10**9,
        bytes_per_token=14336, kv_block_bytes=1 << 16, microbatch=8, model=f"chain-{stages}",
    )  # fmt: skip


async def measured(plan: Plan, case: Case, folder: Path) -> tuple[RunCost, int]:
    """Run a case on a fresh local cluster: its cost, and its number of microbatches."""
    path = folder / f"{case.name}.json"
    path.write_bytes(plan.canonical())
    workload = open_workload(f"constant:rate=1000000000,requests={case.requests},input=32,output={case.output_tokens}")
    order = RunOrder(
        plan_digest=plan.digest(),
        scheduling=Scheduling(credits=case.credits, microbatch=8),
        seed=0,
        window=case.window,
        tokens=False,
    )
    async with LocalCluster(plan, path, LocalOptions(restart=False), say) as up:
        await up.healthy()
        totals, cost = await run_at(up.address, order, workload, Ignoring())
    return cost, totals.microbatches


def row(case: Case, folder: Path) -> Row:
    """Measure one case and its echo."""
    plan = chain(case.stages, case.credits) if case.stages else wafers(placement="by-kind", layer_bytes="nominal")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        cost, microbatches = runner.run(measured(plan, case, folder))
    hops = microbatches * (len(plan.visits) + 1)
    # A frame with n microbatches has about 40 n bytes of columns and 40 bytes of its own.
    bytes_per_frame = 40 + 40 * hops // max(1, cost.frames - cost.promise_frames)
    in_flight = 1 if case.credits == 1 else 2 * len(os.sched_getaffinity(0))
    echo_ns = measure(len(plan.stages) + 1, ECHO_HOPS, bytes_per_frame, in_flight)
    ratio = cost.cpu_ns / hops / echo_ns
    return Row(
        case=case.name,
        cpu_us_per_hop=round(cost.cpu_ns / hops / 1e3, 2),
        echo_us_per_hop=round(echo_ns / 1e3, 2),
        ratio=round(ratio, 3),
        target=case.target,
        good=ratio <= case.target,
        microbatches=microbatches,
        microbatches_per_frame=round(hops / max(1, cost.frames - cost.promise_frames), 2),
        frames_per_hop=round(cost.frames / hops, 3),
        promise_share=round(cost.promise_frames / max(1, cost.frames), 3),
        hops_per_s=round(hops / cost.wall_ns * 1e9),
    )


def main(names: list[str]) -> int:
    """Measure the named cases, or all; returns 1 if one misses its target."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(case, Path(folder)) for case in CASES if not names or case.name in names]
    print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    return int(not all(r.good for r in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
