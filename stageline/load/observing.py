"""Observes a server: a workload, the times of its calls, and its metrics."""

from collections.abc import Sequence

import msgspec

from stageline.errors import UsageError
from stageline.load.clock import Clock
from stageline.load.observation import Engine, Observation, SeenMetrics
from stageline.load.options import LoadOptions
from stageline.load.run import LoadResult, OnProgress, run_load
from stageline.load.scrapes import Scrape, read_scrapes, scraping
from stageline.runtime.samples import Samples
from stageline.workload import DescribedWorkload


class MetricNames(msgspec.Struct, frozen=True):
    """The names of an engine's metrics."""

    running: str
    waiting: str
    kv_usage: tuple[str, ...]
    preemptions: str = ""
    cache_queries: str = ""
    cache_hits: str = ""


# vLLM, vllm/v1/metrics/loggers.py; SGLang, python/sglang/srt/metrics/collector.py. Stageline exports vLLM's names.
NAMES: dict[Engine, MetricNames] = {
    "vllm": MetricNames(
        "vllm:num_requests_running", "vllm:num_requests_waiting",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
    ),
    "sglang": MetricNames("sglang:num_running_reqs", "sglang:num_queue_reqs", ("sglang:token_usage",)),
}  # fmt: skip


async def observe(
    options: LoadOptions, workload: DescribedWorkload, clock: Clock, watch: OnProgress, *, metrics_url: str = "",
    every_s: float,
) -> tuple[Observation, LoadResult]:  # fmt: skip
    """Runs a workload against a server and writes `options.directory`.

    Raises what `run_load` raises, and UsageError without a directory or for a gRPC address.
    """
    directory = options.directory
    if directory is None or options.grpc_address:
        raise UsageError("observe needs -o DIR and the http(s) URL of an OpenAI-compatible server")
    page, tls = metrics_url or f"{options.url}/metrics", options.tls.client_context()
    async with scraping(page, directory, clock.now_ns, seconds=every_s, api_key=options.api_key, tls=tls) as scraper:
        result = await run_load(options, workload, clock, watch)
    summary = result.summary
    found = Observation(
        url=options.url,
        model=summary.model,
        command=options.command,
        workload=workload.description,
        seed=options.seed,
        version=summary.version,
        complete=summary.complete,
        calls=summary.calls,
        clock="emulated" if summary.clock == "emulated" else "wall",
        dilations=tuple(sorted(result.recorder.dilations)),
        shared_prefixes=workload.hash_block_tokens > 0 or options.turns.count > 1,
        metrics=seen(read_scrapes(directory), page, scraper.failure),
        remarks=tuple(summary.remarks),
    )
    return found, result


def seen(scrapes: Sequence[Scrape], url: str, failure: str) -> SeenMetrics:
    """The figures of the scrapes."""
    every = [scrape.samples() for scrape in scrapes]
    found = next(((e, n) for e, n in NAMES.items() if any(s.of(n.running) for s in every)), None)
    if found is None:
        return SeenMetrics(url=url, scrapes=len(every), failure=failure)
    engine, names = found
    passed = every[-1].since(every[0])
    asked = passed.total(names.cache_queries)
    return SeenMetrics(
        url=url,
        scrapes=len(every),
        failure=failure,
        engine=engine,
        running_peak=_peak(every, (names.running,)),
        waiting_peak=_peak(every, (names.waiting,)),
        kv_usage_peak=_peak(every, names.kv_usage),
        preemptions=passed.total(names.preemptions) if every[-1].of(names.preemptions) else None,
        prefix_hit_ratio=passed.total(names.cache_hits) / asked if asked else None,
    )


def _peak(every: Sequence[Samples], names: Sequence[str]) -> float | None:
    """The largest sum over all engines of a server; None if no scrape has the metric."""
    found = [samples.total(name) for samples in every for name in names if samples.of(name)]
    return max(found, default=None)
