"""A run of a fleet in pictures and files: replicas have the names of their pools, stages those of their plans."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import stageline
from stageline.engine.fleet import Fleet, Pool
from stageline.engine.served import serve
from stageline.engine.settings import Scheduling
from stageline.report.chart import draw_chart
from stageline.report.page.data import page_data
from stageline.report.page.sheet import plan_words, room_words
from stageline.report.perfetto.trace import write_trace
from stageline.report.pools import RunPools
from stageline.report.rundir import read_events, read_stages
from stageline.report.spans.context import Sampler
from stageline.report.spans.recorder import RequestTrace, TraceRecorder
from stageline.report.text_report import run_report
from stageline.report.timeline import first_microbatches
from stageline.testing import ListWorkload, run_fleet
from tests.known import known_fleet, known_requests
from tests.unit.report.test_perfetto import Trace

SPEC = "constant:rate=400,requests=12,input=16,output=12"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> stageline.RunResult:
    """Four requests for each replica."""
    return stageline.run(known_fleet(), SPEC, output=tmp_path_factory.mktemp("runs") / "run", events=True)


def directory(run: stageline.RunResult) -> Path:
    assert run.directory is not None
    return run.directory


def test_numbers_and_names() -> None:
    pools = RunPools(known_fleet())
    assert [pools.replica_name(r) for r in range(pools.replicas)] == ["long-0", "short-0", "short-1"]
    assert [(pool.first_replica, pool.first_stage) for pool in pools.pools] == [(0, 0), (1, 4)]
    assert RunPools(known_fleet().pools[0].plan).replica_name(0) == "0"


def test_what_all_pools_share_is_said_once(run: stageline.RunResult) -> None:
    settings = run.summary.settings
    assert "credits" not in settings
    assert (settings["kv"], settings["balance"]) == ("reserve", "round-robin")
    assert [pool.settings["credits"] for pool in run.summary.pools] == [pool.credits for pool in run.summary.pools]
    assert run.summary.credits == max(pool.credits for pool in run.summary.pools)


def test_the_page_knows_every_stage_by_its_pool(run: stageline.RunResult) -> None:
    data, _ = page_data(directory(run))
    assert data.replicas == ["long-0", "short-0", "short-1"]
    assert data.stage_numbers == [0, 1, 2, 3, 4, 5, 4, 5]
    assert len(data.plan_stages) == 6
    assert data.label == run.summary.topology.fleet == "1 x long + 2 x short"


def test_the_trace_has_a_track_for_every_stage_and_link(run: stageline.RunResult, tmp_path: Path) -> None:
    """And the flow of every request leads through the last visit of its own replica."""
    write_trace(directory(run), tmp_path / "trace")
    trace = Trace(tmp_path / "trace")
    names = set(trace.names.values())
    assert {"long-0 stage 3 (stage-3)", "short-1 stage 1 (stage-1)", "long-0 link 3", "short-1 link 1"} <= names
    flows = {
        (trace.names[uuid].partition(" ")[0], flow - 1)
        for uuid, slices in trace.slices.items()
        for _, _, _, found in slices
        for flow in found
        if "stage" in trace.names[uuid]
    }
    replicas = {record.index: RunPools(known_fleet()).replica_name(record.replica or 0) for record in run.requests}
    assert flows == {(name, index) for index, name in replicas.items()}


def test_spans_carry_the_pool() -> None:
    fleet, ended = known_fleet(), list[RequestTrace]()
    maker_module = pytest.importorskip("stageline.report.spans.maker")
    visits = [len(plan.visits) for plan in RunPools(fleet).plans]
    sampler = Sampler("here", 1)
    recorder = TraceRecorder(sampler, visits, ended.append)
    requests = known_requests()[:3]
    for request in requests:
        recorder.arrived(request.index, request.arrival_ns)
    seen = run_fleet(serve(fleet), ListWorkload(requests)).seen
    for (replica, number), members in seen.microbatches.items():
        recorder.formed(replica, number, members)
    for e in sorted(seen.services, key=lambda e: e.end_ns):
        recorder.served(e.replica, e.stage, e.visit, e.number, e.arrival_ns, e.start_ns, e.end_ns)
    for record in seen.by_index():
        recorder.request(record)
    maker = maker_module.SpanMaker(fleet, sampler, lambda ns: ns)
    for trace, (pool, stages) in zip(ended, (("long", 4), ("short", 2), ("short", 2)), strict=True):
        request, *services = maker.spans(trace)
        assert request.attributes["stageline.pool"] == pool
        assert {span.name for span in services} == {f"{pool} stage {s} (stage-{s})" for s in range(stages)}
        assert {span.resource.attributes["stageline.pool"] for span in services} == {pool}


def test_the_sheet_describes_pools(run: stageline.RunResult) -> None:
    words = dict(plan_words(run.summary))
    assert words["devices"] == "8 x test"
    assert words["pool short"].startswith("2 x short on 4 x test; busy for ")
    assert "one replica lost" not in dict(room_words(run.summary, run.stages))  # of unlike ones


def test_the_chart_names_replicas(run: stageline.RunResult, tmp_path: Path) -> None:
    timeline = first_microbatches(read_events(directory(run)), run.summary.first.visits, 8)
    draw_chart(run.summary, read_stages(directory(run)), timeline, [tmp_path / "a.svg"])
    svg = (tmp_path / "a.svg").read_text()
    assert "short-1/1" in svg
    assert "of replica long-0" in svg


def test_what_binds_is_said_of_each_pool(run: stageline.RunResult) -> None:
    seen = [line.seen for line in run.summary.binds]
    assert any(line.startswith("Pool long: stages idle for ") for line in seen)
    assert not any("--replicas" in line.moved_by for line in run.summary.binds if line.seen.startswith("Pool"))


def test_fleets_are_compared_pool_by_pool(run: stageline.RunResult) -> None:
    """Pools that both runs have; a plan alone has none."""
    fleet = known_fleet()
    short = Fleet(pools=(Pool(name="short", plan=fleet.pools[1].plan, scheduling=Scheduling(kv="grow")),))
    found = stageline.compare(run, stageline.run(short, SPEC))
    rows = {row.name: row for row in found.rows if row.group == "pool short"}
    assert rows["short requests"].values == [8, 12]
    assert not any(row.name.startswith("long") for row in found.rows)
    changes = dict(found.changes)
    assert changes["fleet"] == ["1 x long + 2 x short", "2 x short"]
    assert changes["long: role"] == ["both", "-"]
    alone = stageline.compare(stageline.run(fleet.pools[0].plan, SPEC), run)
    assert not any(row.group.startswith("pool") for row in alone.rows)


def test_the_tables_fit_a_terminal(run: stageline.RunResult) -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(run_report(run.summary, run.stages))
    lines = console.export_text().splitlines()
    assert any(line.startswith("1 x long ") for line in lines)
    assert any(line.startswith("short-1/") for line in lines)
    assert any(line.startswith("pool short") for line in lines)
