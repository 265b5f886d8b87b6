"""The live cluster as clients see it, client included.

    python -m bench.live lateness [PLAN]     delivered TTFT and TPOT against the emulated ones, idle and under load
    python -m bench.live throughput          streamed chunks per second at concurrency 64, 8 stages

Lateness of a reply: what the client measured minus what the usage chunk says, in wall time at dilation 1: for TTFT from
sending the request to the first chunk, for TPOT (last - first chunk) / (tokens - 1). CPU per chunk counts client,
router and all stages: the rate that a host of its own could reach is `chunks_per_cpu_s` times its cores.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from bench.live_client import Reply, closed_loop, request_of
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.cluster.process import Child
from stageline.cost.entries import Affine
from stageline.plan.schema import Defaults, Link, Plan, Stage, Visit
from stageline.runtime.plans import load_plan

STAGES = 8
LATENESS = [("idle", 1, 20, 128, 20), ("8 users", 8, 40, 128, 20), ("32 users", 32, 96, 128, 20)]


def chain(service_ns: int, credits_: int) -> Plan:
    """Eight equal stages, 30 us apart, with KV for everybody."""
    return Plan(
        model="bench",
        device="bench",
        stages=tuple(Stage(name=f"stage-{s}", layers=(s,), kv_budget_bytes=1 << 40) for s in range(STAGES)),
        visits=tuple(Visit(stage=s, layers=(s,), cost=0, min_service_ns=service_ns) for s in range(STAGES)),
        links=tuple(Link(latency_ns=30_000, bytes_per_s=50 * 10**9, bytes_per_token=8192) for _ in range(STAGES + 1)),
        costs=(Affine(base_ns=service_ns, token_ns=200),),
        defaults=Defaults(microbatch=64, credits=credits_, batched_tokens=8192),
    )


def cpu_s(up: LocalCluster) -> dict[str, float]:
    """CPU time so far, by party (Linux)."""
    assert up.router is not None
    return {"client": time.process_time(), "router": _cpu_s(up.router), "stages": sum(map(_cpu_s, up.stages))}


def _cpu_s(child: Child) -> float:
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantiles(values: list[float]) -> dict[str, float]:
    """p50 and p99 in ms."""
    ordered = sorted(values)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1e3, 3),
        "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1e3, 3),
    }


def row(case: str, replies: list[Reply], wall_s: float) -> dict[str, object]:
    """One line of the result."""
    chunks = sum(len(r.times_s) for r in replies)
    first, step, queue = [], [], []
    for reply in replies:
        usage, times = reply.usage, reply.times_s
        first.append(times[0] - usage["ttft_s"])
        if len(times) > 1:
            emulated = (usage["e2e_s"] - usage["ttft_s"]) / (len(times) - 1)
            step.append((times[-1] - times[0]) / (len(times) - 1) - emulated)
        queue.append(usage["queue_s"])
    return {
        "case": case,
        "requests": len(replies),
        "chunks_per_s": round(chunks / wall_s),
        "ttft_lateness": quantiles(first),
        "tpot_lateness": quantiles(step),
        "emulated_ttft": quantiles([r.usage["ttft_s"] for r in replies]),
        "emulated_queue": quantiles(queue),
    }


async def measured(plan: Plan, cases: list[tuple[str, int, int, int, int]]) -> None:
    """One cluster; a line per case of (name, users, requests, prompt tokens, output tokens)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_bytes(plan.canonical())
        options = LocalOptions(restart=False, router_flags=("--http-port=0",))
        async with LocalCluster(plan, path, options, lambda text: sys.stderr.write(text + "\n")) as up:
            await up.healthy()
            address = up.router_endpoints.http
            await closed_loop(address, 1, 3, request_of(8, 8))
            for name, users, requests, prompt, output in cases:
                spent_s, began = cpu_s(up), time.perf_counter()
                replies = await closed_loop(address, users, requests, request_of(prompt, output))
                line = row(name, replies, time.perf_counter() - began)
                chunks = requests * output
                cost = {k: round((v - spent_s[k]) / chunks * 1e6, 1) for k, v in cpu_s(up).items()}
                line["cpu_us_per_chunk"] = cost
                line["chunks_per_cpu_s"] = round(1e6 / sum(cost.values()))
                line["load_average"] = round(os.getloadavg()[0], 1)
                print(msgspec.json.encode(line).decode(), flush=True)


def main(arguments: list[str]) -> None:
    """See the module."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if arguments[:1] == ["throughput"]:
            plan = chain(300_000, 1)
            runner.run(measured(plan, [("64 users", 64, 256, 32, 300)]))
        elif arguments[:1] == ["lateness"]:
            plan = load_plan(Path(arguments[1])) if len(arguments) > 1 else chain(3_000_000, 8)
            runner.run(measured(plan, LATENESS))
        else:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
