"""What metrics cost a stage at full speed: their share of its CPU, and the time of a scrape.

    python -m bench.metrics        JSON on stdout; exit code 1 if a target is missed

A cluster of 8 stages runs at full speed. Windows without and with scrapes alternate within one run, so that both see
the same host; in the latter every stage is scraped 20 times per second, a hundred times as often as by Prometheus.

- The CPU time of a scrape is what the scraped windows use beyond as many microbatches without scrapes. Its share is
  that time once per 5 s, the interval of `deploy/prometheus/prometheus.yml`, over the CPU of a stage at full speed.
- Counting is timed separately: the additions that a frame needs only for metrics, over the CPU of a frame.

CPU times are valid on a busy host, wall times of scrapes are not. The target therefore applies to the fastest tenth of
idle scrapes, and the result includes the load average.
"""

import asyncio
import os
import sys
import tempfile
import time
import timeit
from pathlib import Path
from statistics import median, quantiles

import aiohttp
import msgspec
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from bench.cluster import chain
from stageline.cluster.client_run import run_at
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.runtime import metric_names as names
from stageline.runtime.logs import say
from stageline.testing import Ignoring
from stageline.wire.router_client import RunOrder
from stageline.workload import open_workload

STAGES, IN_FLIGHT = 8, 64
WINDOWS, WINDOW_S, SCRAPES_PER_S, INTERVAL_S = 8, 1.0, 20, 5.0
MAX_SHARE, MAX_SCRAPE_MS = 0.05, 10.0
WORKLOAD = "constant:rate=1000000000,requests=100000,input=32,output=64"


class StageCounters(msgspec.Struct, frozen=True):
    """Counters of all stages, summed; or their increase in a window."""

    cpu_s: float
    microbatches: float
    frames: float


class MetricsCost(msgspec.Struct, frozen=True, kw_only=True):
    """The results, and whether they meet the targets."""

    cpu_share: float
    scraping_share: float
    counting_share: float
    cpu_ms_per_scrape: float
    load_average: float
    scrape_ms_p10_idle: float
    scrape_ms_p50_idle: float
    scrape_ms_p50_full_speed: float
    scrape_ms_p90_full_speed: float
    router_scrape_ms_p50_full_speed: float
    stage_cpu_us_per_microbatch: float
    stage_cpu_cores: float
    good: bool


async def scrape(client: aiohttp.ClientSession, address: str) -> tuple[float, str]:
    """Scrape once: wall time in ms, and the text."""
    began = time.perf_counter()
    async with client.get(f"http://{address}/metrics") as reply:
        text = await reply.text()
    return (time.perf_counter() - began) * 1e3, text


async def counters(client: aiohttp.ClientSession, stages: list[str]) -> StageCounters:
    """Scrape every stage once."""
    texts = await asyncio.gather(*(scrape(client, address) for address in stages))
    sums = dict.fromkeys(("process_cpu_seconds_total", names.STAGE_MICROBATCHES.name, names.STAGE_FRAMES.name), 0.0)
    for _, text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in sums:
                    sums[sample.name] += sample.value
    return StageCounters(*sums.values())


async def window(
    client: aiohttp.ClientSession, stages: list[str], scrapes_per_s: int
) -> tuple[StageCounters, list[float]]:
    """The stages' counters over WINDOW_S, and the wall times in ms of the scrapes meanwhile."""
    before, times = await counters(client, stages), list[float]()
    end_s = time.perf_counter() + WINDOW_S
    while (left_s := end_s - time.perf_counter()) > 0:
        if not scrapes_per_s:
            await asyncio.sleep(left_s)
            break
        times += [ms for ms, _ in await asyncio.gather(*(scrape(client, address) for address in stages))]
        await asyncio.sleep(1 / scrapes_per_s)
    after = await counters(client, stages)
    return StageCounters(*(b - a for a, b in zip(astuple(before), astuple(after), strict=True))), times


def astuple(of: StageCounters) -> tuple[float, ...]:
    """The fields."""
    return of.cpu_s, of.microbatches, of.frames


def total(windows: list[StageCounters]) -> StageCounters:
    """The sum of several windows."""
    return StageCounters(*(sum(column) for column in zip(*map(astuple, windows), strict=True)))


def counting_ns() -> float:
    """Time that a frame spends on metrics alone: it adds frames, promises, microbatches and bytes, in and out."""
    counter = type("Counter", (), {})()
    counter.a = counter.b = counter.c = counter.d = 0

    def add() -> None:
        for _ in range(2):
            counter.a += 1
            counter.b += not 3
            counter.c += 3
            counter.d += 1_000

    rounds = 20_000
    return min(timeit.repeat(add, number=rounds, repeat=5)) / rounds * 1e9


async def measure(plan: Plan, path: Path) -> MetricsCost:
    """Run the whole measurement; `path` is the plan's file."""
    scheduling = Scheduling(credits=IN_FLIGHT, microbatch=8)
    order = RunOrder(plan_digest=plan.digest(), scheduling=scheduling, seed=0, tokens=False)
    async with LocalCluster(plan, path, LocalOptions(restart=False), say) as up, aiohttp.ClientSession() as client:
        await up.healthy()
        stages = [child.endpoints.metrics for child in up.stages if child.endpoints]
        idle = [(await scrape(client, stages[0]))[0] for _ in range(50)]
        run = asyncio.create_task(run_at(up.address, order, open_workload(WORKLOAD), Ignoring()))
        try:
            while not (await window(client, stages, 0))[0].microbatches:
                pass
            pairs = [
                (await window(client, stages, 0), await window(client, stages, SCRAPES_PER_S)) for _ in range(WINDOWS)
            ]
            router = [(await scrape(client, up.router_endpoints.metrics))[0] for _ in range(50)]
            if run.done():
                raise SystemExit("the run ended before the measurement: give it more requests")
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
    times = [ms for _, (_, some) in pairs for ms in some]
    return judged([q for (q, _), _ in pairs], [s for _, (s, _) in pairs], times, idle, router)


def judged(
    quiet: list[StageCounters],
    scraped: list[StageCounters],
    times_ms: list[float],
    idle_ms: list[float],
    router_ms: list[float],
) -> MetricsCost:
    """The results from windows without and with scrapes, and from the times of scrapes."""
    plain, more = total(quiet), total(scraped)
    per_microbatch_s = plain.cpu_s / plain.microbatches
    per_scrape_s = max(0.0, more.cpu_s - per_microbatch_s * more.microbatches) / len(times_ms)
    cores = plain.cpu_s / STAGES / (len(quiet) * WINDOW_S)  # of one stage
    scraping = per_scrape_s / INTERVAL_S / cores
    counting = counting_ns() * 1e-9 * plain.frames / plain.cpu_s
    fastest_ms = quantiles(idle_ms, n=10)[0]
    return MetricsCost(
        cpu_share=round(scraping + counting, 4),
        scraping_share=round(scraping, 4),
        counting_share=round(counting, 4),
        cpu_ms_per_scrape=round(per_scrape_s * 1e3, 2),
        load_average=round(os.getloadavg()[0], 1),
        scrape_ms_p10_idle=round(fastest_ms, 2),
        scrape_ms_p50_idle=round(median(idle_ms), 2),
        scrape_ms_p50_full_speed=round(median(times_ms), 2),
        scrape_ms_p90_full_speed=round(quantiles(times_ms, n=10)[-1], 2),
        router_scrape_ms_p50_full_speed=round(median(router_ms), 2),
        stage_cpu_us_per_microbatch=round(per_microbatch_s * 1e6, 1),
        stage_cpu_cores=round(cores, 3),
        good=scraping + counting <= MAX_SHARE and fastest_ms < MAX_SCRAPE_MS,
    )


def main() -> int:
    """Measure and print; returns 1 if a target is missed."""
    plan = chain(STAGES, IN_FLIGHT)
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        path = Path(folder, "plan.json")
        path.write_bytes(plan.canonical())
        result = runner.run(measure(plan, path))
    print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    return int(not result.good)


if __name__ == "__main__":
    sys.exit(main())
