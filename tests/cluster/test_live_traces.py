"""Live requests as spans: children of the caller's trace, exact, and in the wall time that the caller sees."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from grpc import aio

from stageline.engine import inprocess
from stageline.errors import UsageError
from stageline.report.run_writer import RunWriter
from stageline.report.spans.context import Sampler
from stageline.report.spans.recorder import RequestTrace, TraceRecorder
from stageline.v1 import router_pb2
from stageline.v1.router_pb2_grpc import RouterStub
from stageline.workload import open_workload
from stageline.workload.recording import RecordedWorkload
from tests.cluster.live import MODEL, Live, handing_over, live, live_plan
from tests.cluster.servers import until
from tests.otlp_collector import Collector, collecting
from tests.reference.plans import pipeline

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


async def post(cluster: Live, traceparent: str = "", **body: object) -> None:
    """One request that says where it comes from."""
    headers = {"traceparent": traceparent, "tracestate": "vendor=1"} if traceparent else {}
    asked = {"model": MODEL, "prompt": [1] * 20, "max_tokens": 5} | body
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{cluster.url}/v1/completions", json=asked, headers=headers) as reply,
    ):
        assert reply.status == 200
        await reply.read()


async def test_a_callers_trace_goes_on_and_its_flag_is_honoured(collector: Collector) -> None:
    async with live(live_plan(3), otlp=collector.url, trace_sample=0.0) as cluster:
        before_ns = time.time_ns()
        await post(cluster, f"00-{TRACE}-{SPAN}-01", n=2)
        after_ns = time.time_ns()
        await post(cluster, f"00-{'ab' * 16}-{SPAN}-00")
        await post(cluster, "nonsense")
        await post(cluster)
    spans = collector.requests()
    assert [(s.trace_id, s.parent_id, s.span.trace_state) for s in spans] == [(TRACE, SPAN, "vendor=1")] * 2
    for span in spans:
        children = collector.children(span)
        assert [c.facts["stageline.visit"] for c in children] == [0, 1, 2] * 5
        assert before_ns <= span.start_ns <= children[0].start_ns
        assert children[-1].end_ns <= span.end_ns <= after_ns
    assert len(collector.spans) == 2 * 16


async def test_visits_are_those_of_the_replay_at_any_dilation(collector: Collector, tmp_path: Path) -> None:
    """The router's copy of its stages tells them; what the real stages did is checked by the session's digest."""
    plan, path = live_plan(route=(0, 1, 0, 2, 1)), tmp_path / "session.jsonl"
    settings = {"record": str(path), "dilation": "3", "otlp": collector.url, "trace_sample": 1.0}
    async with live(plan, **settings) as cluster:
        await asyncio.gather(*(post(cluster, prompt=[1] * (1 + 30 * i), max_tokens=1 + i) for i in range(8)))
    replayed = {t.index: t for t in replay(path)}
    assert len(replayed) == 8
    seen = {s.facts["stageline.request"]: s for s in collector.requests()}
    assert seen.keys() == replayed.keys()
    for index, span in seen.items():
        children = collector.children(span)
        told = sorted((v.arrival_ns, v.visit, v.microbatch, v.end_ns - v.start_ns) for v in replayed[index].visits)
        assert told == sorted(
            tuple(c.facts[f"stageline.{k}"] for k in ("arrival_ns", "visit", "microbatch", "service_ns"))
            for c in children
        )
        record = replayed[index].record
        assert record is not None and record.last_token_ns is not None
        wall_ns, emulated_ns = span.end_ns - span.start_ns, record.last_token_ns - record.arrival_ns
        assert wall_ns >= 3 * emulated_ns  # longer by what the clock slipped


async def test_a_request_is_seen_on_its_way_through_the_pools(collector: Collector) -> None:
    async with live(handing_over("source-first"), otlp=collector.url, trace_sample=1.0) as cluster:
        await post(cluster)
    (span,) = collector.requests()
    places = [(c.resource["stageline.pool"], c.facts["stageline.visit"]) for c in collector.children(span)]
    assert places == [("prefill", 0), ("prefill", 1), *[("decode", 0), ("decode", 1), ("decode", 2)] * 4]
    assert {"KV transfer begins", "KV has landed"} <= set(span.events)


def replay(path: Path) -> list[RequestTrace]:
    """The recording, run in process with every request traced."""
    plan, workload, ended = live_plan(route=(0, 1, 0, 2, 1)), open_workload(str(path)), list[RequestTrace]()
    assert isinstance(workload, RecordedWorkload)
    trace = TraceRecorder(Sampler("", 1), len(plan.visits), ended.append)
    for index in range(8):
        trace.arrived(index, 0)
    with RunWriter(plan, trace=trace) as writer:
        inprocess.run(
            plan, workload.header.scheduling, workload, seed=0, observer=writer, stage_observer=trace, members=trace
        )
    return ended


async def test_the_grpc_door_takes_the_context_from_metadata(collector: Collector) -> None:
    async with (
        live(live_plan(2), otlp=collector.url, trace_sample=0.0) as cluster,
        aio.insecure_channel(cluster.grpc) as channel,
    ):
        stub = RouterStub(channel)
        request = router_pb2.GenerateRequest(prompt="hello world", output_tokens=3)
        for flag in ("01", "00"):
            call = stub.Generate(request, metadata=(("traceparent", f"00-{TRACE}-{SPAN}-{flag}"),))
            assert sum([reply.tokens async for reply in call]) == 3
    assert [(s.trace_id, s.parent_id) for s in collector.requests()] == [(TRACE, SPAN)]
    assert len(collector.spans) == 1 + 2 * 3


async def test_requests_of_a_session_that_breaks_off_are_errors(collector: Collector) -> None:
    async with live(live_plan(2), otlp=collector.url, trace_sample=1.0, dilation="50") as cluster:
        asking = asyncio.ensure_future(post(cluster, max_tokens=400, stream=True))

        async def running() -> bool:
            return await cluster.metric("stageline_requests_running") == 1

        await until(running)
        await cluster.stages[1].stop(0)
        await asyncio.gather(asking, return_exceptions=True)
        await cluster.ready(False)
        now_ns = time.time_ns()
    (span,) = collector.requests()
    assert span.span.status.message == "the session broke off"
    assert all(c.end_ns <= span.end_ns <= now_ns for c in collector.children(span))


async def test_a_collector_that_is_gone_costs_nobody_anything(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 404
    async with live(live_plan(2), otlp=collector.url, trace_sample=1.0) as cluster:
        await asyncio.gather(*(post(cluster) for _ in range(4)))
    assert any("spans could not be sent" in r.message for r in caplog.records)


async def test_a_router_refuses_an_address_that_is_none(tmp_path: Path) -> None:
    from router.server import build
    from router.settings import RouterSettings

    path = tmp_path / "plan.json"
    path.write_bytes(pipeline([1_000], latency_ns=1).canonical())
    with pytest.raises(UsageError, match="http://localhost:4318"):
        build(RouterSettings(plan=str(path), stages="127.0.0.1:1", otlp="collector"))
