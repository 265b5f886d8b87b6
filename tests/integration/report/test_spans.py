"""Request spans: who is traced, and that every child is a service of the run, no more and no fewer."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.report.events import Served
from stageline.report.run_writer import RunWriter
from stageline.report.rundir import read_events, read_requests, read_summary
from stageline.report.spans import recorder as recording
from stageline.report.spans.context import Sampler, TraceContext, parse_traceparent
from stageline.report.spans.otlp import SpanExporter, SpanSender
from stageline.report.spans.recorder import RequestTrace, TraceRecorder
from stageline.testing import ListWorkload
from tests.known import OUTPUT, known_plan, known_requests
from tests.otlp_collector import Collector, collecting
from tests.reference.plans import pipeline

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f" 00-{TRACE}-{SPAN}-02 ", False),
        (f"cc-{TRACE}-{SPAN}-01-what-will-come", True),
    ],
)
def test_a_traceparent_is_understood(text: str, sampled: bool) -> None:
    assert parse_traceparent(text, "a=b") == TraceContext(int(TRACE, 16), int(SPAN, 16), sampled, "a=b")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE[1:]}-{SPAN}-01",
    ],
)
def test_a_malformed_traceparent_counts_for_nothing(text: str | None) -> None:
    assert parse_traceparent(text) is None


def test_the_ratio_holds_and_a_callers_flag_goes_before_it() -> None:
    kept = [Sampler("here", 0.25).kept(index) for index in range(4_000)]
    assert 900 < sum(trace is not None for trace in kept) < 1_100
    assert len(set(kept)) == sum(trace is not None for trace in kept) + 1
    everything, nothing = Sampler("here", 1), Sampler("here", 0)
    assert all(everything.kept(index) == trace for index, trace in enumerate(kept) if trace)
    assert not any(nothing.kept(index) for index in range(1_000))
    assert nothing.kept(0, TraceContext(7, 8, True)) == 7
    assert everything.kept(0, TraceContext(7, 8, False)) is None
    assert Sampler("elsewhere", 1).kept(0) != everything.kept(0)


def traced(directory: Path, scheduling: Scheduling, ratio: float = 1) -> list[RequestTrace]:
    """The known run with its events, and the traces that ended."""
    plan, ended = known_plan(), list[RequestTrace]()
    trace = TraceRecorder(Sampler("known", ratio), len(plan.visits), ended.append)
    requests = known_requests()
    with RunWriter(plan, directory, events=True, trace=trace) as writer:
        for request in requests:
            writer.arrived(request.index, request.arrival_ns)
        inprocess.run(
            plan, scheduling, ListWorkload(requests), seed=0, observer=writer, stage_observer=writer.stage_observer,
            members=trace,
        )  # fmt: skip
    return ended


@pytest.mark.parametrize("scheduling", [Scheduling(), Scheduling(kv="grow", microbatch=2)], ids=["reserve", "grow"])
def test_children_are_the_services_of_the_event_log(tmp_path: Path, scheduling: Scheduling) -> None:
    ended = traced(tmp_path, scheduling)
    log = {
        (e.replica, e.stage, e.visit, e.number, e.arrival_ns, e.start_ns, e.end_ns)
        for e in read_events(tmp_path)
        if isinstance(e, Served)
    }
    assert sorted(t.index for t in ended) == list(range(11))
    assert {tuple(v) for t in ended for v in t.visits} == log
    plan, latency_ns = known_plan(), known_plan().links[-1].latency_ns
    for trace in ended:
        record = trace.record
        assert record is not None
        rounds = [trace.visits[i : i + 4] for i in range(0, len(trace.visits), 4)]
        assert all([v.visit for v in one] == list(range(len(plan.visits))) for one in rounds)
        assert len(rounds) == OUTPUT  # the prefill samples the first token, one after a preemption its next
        assert rounds[0][0].arrival_ns == (record.admitted_ns or 0) + plan.links[0].latency_ns
        assert rounds[0][-1].end_ns + latency_ns == record.first_token_ns
        assert rounds[-1][-1].end_ns + latency_ns == record.last_token_ns
    if scheduling.kv == "grow":
        assert any(t.record and t.record.preemptions for t in ended)


def test_a_request_that_is_not_kept_changes_nothing_for_those_that_are(tmp_path: Path) -> None:
    everyone = {t.index: t.visits for t in traced(tmp_path / "all", Scheduling())}
    some = {t.index: t.visits for t in traced(tmp_path / "some", Scheduling(), 0.5)}
    assert 0 < len(some) < len(everyone)
    assert all(everyone[index] == visits for index, visits in some.items())


def test_a_long_request_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recording, "MAX_VISIT_SPANS", 10)
    ended = traced(tmp_path, Scheduling())
    assert {(len(t.visits), t.left_out) for t in ended} == {(10, OUTPUT * 4 - 10)}


def test_what_broke_off_ends_where_it_broke() -> None:
    ended: list[RequestTrace] = []
    trace = TraceRecorder(Sampler("x", 1), 2, ended.append)
    trace.arrived(3, 100)
    trace.formed(0, 0, [3])
    trace.served(0, 0, 0, 0, 110, 110, 150)
    trace.served(0, 1, 1, 0, 160, 160, 900)
    trace.abandon(500)
    assert [(t.index, t.broken_ns, [v.end_ns for v in t.visits]) for t in ended] == [(3, 500, [150])]
    trace.abandon(600)
    assert len(ended) == 1


class Fake(SpanExporter):
    """Takes what it is told to take."""

    def __init__(self, *answers: bool) -> None:
        self.answers, self.sizes = list(answers), list[int]()

    def send(self, spans: "Iterable[object]") -> bool:
        """See SpanExporter."""
        self.sizes.append(len(list(spans)))
        return self.answers.pop(0)

    def close(self) -> None:
        """See SpanExporter."""


def test_a_run_gives_up_on_a_collector_that_fails_and_counts() -> None:
    fake = Fake(True, False)
    sender = SpanSender(fake, waits=True)
    sender.put(lambda: [object()] * 1_500)  # type: ignore[list-item]
    sender.close()
    assert fake.sizes == [512, 512]
    assert (sender.sent, sender.lost) == (512, 988)


def test_a_trace_that_cannot_be_made_stops_nobody() -> None:
    fake = Fake(True)
    sender = SpanSender(fake, waits=True)
    sender.put(lambda: [1 / 0])  # type: ignore[list-item]
    sender.put(lambda: [object()])  # type: ignore[list-item]
    sender.close()
    assert (sender.sent, sender.lost, fake.sizes) == (1, 1, [1])


@pytest.fixture
def collector() -> Iterable[Collector]:
    with collecting() as one:
        yield one


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_bytes(pipeline([100_000, 200_000], latency_ns=5_000, credits_=3).canonical())
    return path


def command(plan: Path, *more: str) -> list[str]:
    return ["run", str(plan), "--workload", "constant:rate=1000,input=16,output=3", "--requests", "20", *more]


def test_run_sends_spans(collector: Collector, plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    plain, with_spans = tmp_path / "plain", tmp_path / "spans"
    assert run(command(plan_file, "-o", str(plain))) == 0
    anchor_ns = 1_700_000_000_000_000_000
    flags = ["--otlp", collector.url, "--trace-sample", "1", "--trace-anchor", str(anchor_ns)]
    assert run(command(plan_file, "-o", str(with_spans), *flags)) == 0
    assert f"140 sent to {collector.url}/v1/traces" in capsys.readouterr().err
    assert read_summary(plain).digest == read_summary(with_spans).digest
    spans, records = collector.requests(), list(read_requests(with_spans))
    assert len(spans) == len(records) == 20
    for span, record in zip(spans, records, strict=True):
        assert record.first_token_ns is not None and record.last_token_ns is not None
        assert (span.start_ns, span.end_ns) == (anchor_ns + record.arrival_ns, anchor_ns + record.last_token_ns)
        assert span.events["first token"] == anchor_ns + record.first_token_ns
        assert span.parent_id == "" and span.service == "stageline-router"
        assert span.facts["gen_ai.usage.output_tokens"] == 3
        assert span.facts["gen_ai.latency.e2e"] == (record.last_token_ns - record.arrival_ns) / 1e9
        children = collector.children(span)
        assert [c.facts["stageline.visit"] for c in children] == [0, 1] * 3
        assert [c.facts["stageline.service_ns"] for c in children] == [100_000, 200_000] * 3
        assert [c.resource["service.instance.id"] for c in children] == ["0/0", "0/1"] * 3
        assert all(span.start_ns <= c.start_ns < c.end_ns <= span.end_ns for c in children)
    assert len({s.span_id for s in collector.spans}) == 140


def test_ids_follow_from_the_run_and_its_anchor(collector: Collector, plan_file: Path) -> None:
    for anchor in ("7", "7", "8"):
        assert run(command(plan_file, "--otlp", collector.url, "--trace-sample", "1", "--trace-anchor", anchor)) == 0
    ids = [s.span_id for s in collector.spans]
    assert sorted(ids[:140]) == sorted(ids[140:280])
    assert not set(ids[280:]) & set(ids[:140])


def test_a_collector_that_is_gone_does_not_cost_the_run(
    collector: Collector, plan_file: Path, capsys: pytest.CaptureFixture
) -> None:
    collector.status = 400
    assert run(command(plan_file, "--otlp", f"{collector.url}/v1/traces", "--trace-sample", "1")) == 0
    assert capsys.readouterr().err == (
        f"spans: 0 sent to {collector.url}/v1/traces; 140 were lost: the collector did not take them\n"
    )


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--otlp", "localhost:4318"], "http://localhost:4318"),
        (["--otlp", "http://localhost:4318", "--trace-sample", "1.5"], "not between 0 and 1"),
        (["--otlp", "http://localhost:4318", "--trace-anchor", "-1"], "--trace-anchor"),
        (["--trace-sample", "0.5"], "--otlp"),
        (["--trace-anchor", "1", "--engine", "cluster"], "--otlp"),
    ],
)
def test_flags_that_make_no_sense(plan_file: Path, flags: list[str], says: str, capsys: pytest.CaptureFixture) -> None:
    assert run(command(plan_file, *flags)) == 2
    assert says in capsys.readouterr().err
