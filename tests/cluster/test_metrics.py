"""What a cluster tells Prometheus after a known run, against its records."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from router.cluster.stages import StageTable
from router.metrics.collector import RouterCollector
from router.metrics.vllm import ServingMetrics
from router.runs.servicer import RouterServicer
from router.runs.status import RouterStatus
from router.server import build as build_router
from router.settings import RouterSettings
from stage_server.metrics import StageCollector
from stage_server.server import build as build_stage
from stage_server.servicer import StageServicer
from stage_server.settings import StageSettings
from stageline.cli.top_view import render
from stageline.engine.causes import CAUSES
from stageline.engine.fleet import Fleet, Pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import RunTotals
from stageline.plan.schema import Plan
from stageline.runtime.cluster_view import cluster_samples, view_between
from stageline.runtime.deployment import Deployment, Document
from stageline.runtime.metric_names import OWN
from stageline.runtime.metrics import Exporter
from stageline.runtime.metrics_page import page
from stageline.runtime.text_format import encode
from stageline.runtime.vllm_names import DROP_IN
from stageline.testing import Recorder
from stageline.units import NS_PER_S
from stageline.wire.router_client import RouterClient, RunOrder
from tests.cluster.live import handing_over
from tests.cluster.servers import serving
from tests.known import OUTPUT, PROMPT, SLOW, TIGHT, known_plan, known_requests

HANDED_OVER = ("stageline_port_", "stageline_kv_in_flight_", "stageline_kv_pinned_", "stageline_kv_transfer_",
               "stageline_hand_over")  # fmt: skip
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(registry: CollectorRegistry) -> Values:
    """Every sample, by name and labels."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def get(values: Values, name: str, **labels: object) -> float:
    """One sample."""
    return values[name, frozenset((key, str(value)) for key, value in labels.items())]


class Watched:
    """A cluster's registries: the router's, and the stages'."""

    def __init__(
        self,
        address: str,
        router: CollectorRegistry,
        stages: list[CollectorRegistry],
        stop_router: Callable[[], Awaitable[object]],
    ) -> None:
        self.address, self.router, self.stages, self.stop_router = address, router, stages, stop_router


@asynccontextmanager
async def watched(plan: Plan) -> AsyncIterator[Watched]:
    """Servers with their collectors."""
    async with AsyncExitStack() as stack:
        registries, addresses, served = [], [], Deployment(plan)
        for index in range(len(plan.stages)):
            collector = StageCollector(index, 0)
            registries.append(CollectorRegistry())
            registries[-1].register(collector)
            metrics = partial(encode, registries[-1])
            stage = StageServicer(served, on_session=collector.on_session, metrics=metrics)
            addresses.append(await stack.enter_async_context(serving(stage)))
        table, registry = StageTable(served, [addresses]), CollectorRegistry()
        serving_metrics, collector = ServingMetrics(served.fleet), RouterCollector(served, table.health)
        status = RouterStatus(table, metrics=partial(encode, registry))
        router = RouterServicer(table, on_run=collector.on_run, watch=serving_metrics, status=status)
        registry.register(collector)
        registry.register(serving_metrics)
        last = await stack.enter_async_context(AsyncExitStack())
        yield Watched(await last.enter_async_context(serving(router)), registry, registries, last.aclose)


async def test_top_shows_the_accounts_of_the_run() -> None:
    """Without an earlier look, shares are those of stages.json but for the wall time before and after the run."""
    plan = known_plan()
    async with watched(plan) as servers, asyncio.timeout(30), RouterClient(servers.address) as client:
        await client.healthy(20)
        before = cluster_samples(await client.status(metrics=True), 0.0)
        order = RunOrder(plan_digest=plan.digest(), scheduling=Scheduling(), seed=0)
        totals, _ = await client.run(order, iter(known_requests()), Recorder())
        shown = view_between("here", Deployment(plan), cluster_samples(await client.status(metrics=True), 1.0), before)
    assert (shown.finished, shown.failed, shown.kv_bound_stage) == (11, 0, TIGHT)
    assert shown.tokens_per_s == 11 * OUTPUT
    out = StringIO()
    Console(file=out, width=80, color_system=None).print(render(shown, 80))
    text = " ".join(out.getvalue().split())
    assert f"busiest stage {SLOW} (" in text and f"KV binds at {TIGHT}" in text
    for cause in ("busy", *(c for c in CAUSES if c != "fault")):
        mean = sum(stage.shares[cause] for stage in shown.stages) / len(shown.stages)
        assert (f"{cause} {mean:.1%}" in text) is (mean >= 0.001), cause
    for record, stage in zip(totals.stages, shown.stages, strict=True):
        assert stage.healthy
        worked_ns = record.window_ns - record.idle_ns["empty"]
        scale = sum(share for cause, share in stage.shares.items() if cause != "empty")
        assert stage.shares["busy"] / scale == pytest.approx(record.busy_ns / worked_ns)
        for cause in CAUSES:
            if cause != "empty":
                assert stage.shares[cause] / scale == pytest.approx(record.idle_ns.get(cause, 0) / worked_ns), cause


async def test_top_sees_a_stage_that_is_gone() -> None:
    plan = known_plan()
    async with watched(plan) as servers, asyncio.timeout(30), RouterClient(servers.address) as client:
        status = await client.healthy(20)
        found = await client.status(metrics=True)
        stages = tuple(msgspec.structs.replace(s, healthy=s.stage != 2) for s in found.stages)
        shown = view_between(
            "here", Deployment(plan), cluster_samples(msgspec.structs.replace(found, stages=stages), 0.0), None
        )
    assert len(status.stages) == 4
    assert [s.healthy for s in shown.stages] == [True, True, False, True]
    assert not shown.stages[2].known


async def known_run() -> tuple[RunTotals, Recorder, Values, list[Values]]:
    """One run on a cluster, and what was scraped after it (stages: before it too, subtracted)."""
    plan, seen = known_plan(), Recorder()
    async with watched(plan) as servers, asyncio.timeout(30), RouterClient(servers.address) as client:
        await client.healthy(20)
        before = [scrape(registry) for registry in servers.stages]
        order = RunOrder(plan_digest=plan.digest(), scheduling=Scheduling(), seed=0)
        totals, _ = await client.run(order, iter(known_requests()), seen)
        stages = [
            {key: value - old.get(key, 0) for key, value in scrape(registry).items()}
            for registry, old in zip(servers.stages, before, strict=True)
        ]
        return totals, seen, scrape(servers.router), stages


@pytest.fixture(scope="module")
def after() -> tuple[RunTotals, Recorder, Values, list[Values]]:
    """The known run, made once."""
    return asyncio.run(known_run())


def test_stages_export_their_records(after: tuple[RunTotals, Recorder, Values, list[Values]]) -> None:
    totals, _, _, stages = after
    for record, values in zip(totals.stages, stages, strict=True):
        place = {"stage": record.stage, "replica": 0}
        busy = get(values, "stageline_stage_busy_seconds_total", **place)
        assert busy == pytest.approx(record.busy_ns / NS_PER_S)
        for cause in CAUSES:
            idle = get(values, "stageline_stage_idle_seconds_total", **place, cause=cause)
            wall_s = 60 if cause == "empty" else 0  # before and after the run wall time counts as empty
            recorded_s = record.idle_ns.get(cause, 0) / NS_PER_S
            assert recorded_s <= idle + 1e-9
            assert idle <= recorded_s + wall_s + 1e-9, cause
        assert get(values, "stageline_stage_microbatches_total", **place) == record.microbatches


def test_the_router_exports_requests_and_what_binds(after: tuple[RunTotals, Recorder, Values, list[Values]]) -> None:
    totals, _, values, _ = after
    for name, wanted in (("requests", 11), ("requests_finished", 11), ("requests_failed", 0)):
        assert get(values, f"stageline_{name}_total") == wanted
    assert get(values, "stageline_microbatches_total") == totals.microbatches
    refusals = [get(values, "stageline_kv_refusals_total", stage=s, replica=0) for s in range(4)]
    assert refusals.index(max(refusals)) == TIGHT == totals.binding_stage
    assert [get(values, "stageline_stage_up", stage=s, replica=0) for s in range(4)] == [1] * 4


def test_serving_metrics_are_those_of_the_records(after: tuple[RunTotals, Recorder, Values, list[Values]]) -> None:
    totals, seen, values, _ = after
    labels = {"model_name": known_plan().model, "engine": 0}
    assert get(values, "vllm:generation_tokens_total", **labels) == len(seen.tokens) == 11 * OUTPUT
    assert get(values, "vllm:prompt_tokens_total", **labels) == 11 * PROMPT
    assert get(values, "vllm:request_success_total", **labels, finished_reason="length") == 11
    sums = {
        "time_to_first_token": sum((r.first_token_ns or 0) - r.arrival_ns for r in seen.requests),
        "e2e_request_latency": sum((r.last_token_ns or 0) - r.arrival_ns for r in seen.requests),
        "request_queue_time": sum((r.admitted_ns or 0) - r.arrival_ns for r in seen.requests),
        "inter_token_latency": sum(now - since for _, now, since in seen.tokens if since is not None),
    }
    for name, total_ns in sums.items():
        assert get(values, f"vllm:{name}_seconds_sum", **labels) == pytest.approx(total_ns / NS_PER_S), name
    assert get(values, "vllm:iteration_tokens_total_count", **labels) == totals.microbatches
    assert get(values, "stageline_time_to_first_token_seconds_count", replica=0) == 11


def exported(registry: CollectorRegistry) -> dict[str, tuple[str, str, frozenset[str]]]:
    """Type, help and labels of every family, by its exposed name; `process_*` left out."""
    found = {}
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(key for sample in family.samples for key in sample.labels) - {"le"}
        if not name.startswith("process_"):
            found[name] = (family.type, family.documentation, labels)
    return found


def documents() -> dict[str, Document]:
    """A plan alone, fleets, and one that hands over."""
    one, two = (Pool(name=name, plan=known_plan()) for name in ("one", "two"))
    fleets = {"one pool": Fleet(pools=(one,)), "two pools": Fleet(pools=(one, two))}
    return {"plan": known_plan(), **fleets, "hand-over": handing_over("source-first")}


@pytest.mark.parametrize("name", documents())
@pytest.mark.parametrize("by", ["stage", "router", "live router"])
async def test_what_is_exported_is_what_the_catalogue_says(by: Exporter, name: str, tmp_path: Path) -> None:
    """A plan alone has no label `pool`, and only a fleet that hands over has figures of that."""
    served = Deployment(documents()[name])
    (tmp_path / "plan.json").write_bytes(served.document.canonical())
    plan = str(tmp_path / "plan.json")
    if by == "stage":
        server = build_stage(StageSettings(plan=plan, stage=0, replica=0))
    else:
        stages = ",".join(f"s{i}:1" for i, _ in enumerate(served.stages))
        server = build_router(RouterSettings(plan=plan, stages=stages, live=by == "live router", http_port=-1))
    specs = {m.name: m for m in (*OWN, *DROP_IN) if by in m.by or (by == "live router" and "router" in m.by)}
    seen = exported(server.registry)
    assert set(seen) == set(specs)
    for metric, (kind, text, labels) in seen.items():
        assert (kind, text) == (specs[metric].kind, specs[metric].help), metric
        wanted = frozenset(specs[metric].labels) - (set() if name != "plan" else {"pool"})
        if metric.startswith(HANDED_OVER):
            wanted = wanted if name == "hand-over" else frozenset()
            assert labels == wanted, metric
        assert labels in (wanted, frozenset()), metric  # no samples, no labels


def test_the_page_is_fresh(root: Path) -> None:
    assert (root / "docs/metrics.md").read_text() == page(), "run scripts/metrics-page"


def test_a_scrape_is_quick() -> None:
    """Of a router with one replica: five hundred samples."""
    registry = CollectorRegistry()
    registry.register(ServingMetrics(Deployment(known_plan()).fleet))
    registry.register(RouterCollector(Deployment(known_plan()), dict))
    best_s = math.inf
    for _ in range(5):
        start = time.thread_time()
        encode(registry)
        best_s = min(best_s, time.thread_time() - start)
    assert best_s < 0.010
