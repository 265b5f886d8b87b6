"""Delivered TTFT and TPOT against the emulated ones, in wall time at dilation 1, idle and under load.

Lateness of a reply: what the client measured minus what the usage chunk says; for TTFT from sending the request to the
first chunk, for TPOT (last - first chunk) / (tokens - 1). Connections are open before. `cores` is the CPU that client,
router and stages got: with many times less than the host has, the figures are those of a busy host.
"""

import os
import time

import msgspec

from bench.live.client import Reply, closed_loop, request_of
from bench.live.cluster import cpu_s, live_cluster
from stageline.cluster.local import LocalCluster
from stageline.plan.schema import Plan


class Case(msgspec.Struct, frozen=True):
    """`users` share `requests` requests, all alike."""

    name: str
    users: int
    requests: int
    prompt_tokens: int = 128
    output_tokens: int = 64


CASES = (Case("idle: one user", 1, 20), Case("8 users", 8, 64), Case("32 users", 32, 192), Case("64 users", 64, 384))


async def accuracy(plan: Plan) -> None:
    """A line of figures per case."""
    async with live_cluster(plan) as up:
        await closed_loop(up.router_endpoints.http, 1, 3, request_of(8, 8))
        for case in CASES:
            print(msgspec.json.encode(await _measured(up, case)).decode(), flush=True)


async def _measured(up: LocalCluster, case: Case) -> dict[str, object]:
    request = request_of(case.prompt_tokens, case.output_tokens)
    spent_s, began_s = sum(cpu_s(up).values()), time.perf_counter()
    replies = await closed_loop(up.router_endpoints.http, case.users, case.requests, request)
    wall_s = time.perf_counter() - began_s
    return row(case, replies) | {
        "chunks_per_s": round(sum(len(r.times_s) for r in replies) / wall_s),
        "cores": round((sum(cpu_s(up).values()) - spent_s) / wall_s, 2),
        "load_average": round(os.getloadavg()[0], 1),
    }


def row(case: Case, replies: list[Reply]) -> dict[str, object]:
    """Lateness and what it is measured against."""
    first, step, emulated = [], [], []
    for reply in replies:
        usage, times = reply.usage, reply.times_s
        first.append(times[0] - usage["ttft_s"])
        emulated.append((usage["e2e_s"] - usage["ttft_s"]) / (len(times) - 1))
        step.append((times[-1] - times[0]) / (len(times) - 1) - emulated[-1])
    return {
        "case": case.name,
        "requests": len(replies),
        "ttft_lateness": quantiles(first),
        "tpot_lateness": quantiles(step),
        "emulated_ttft": quantiles([r.usage["ttft_s"] for r in replies]),
        "emulated_tpot": quantiles(emulated),
    }


def quantiles(values_s: list[float]) -> dict[str, float]:
    """p50 and p99 in ms."""
    ordered = sorted(values_s)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1e3, 3),
        "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1e3, 3),
    }
