"""The run directory: what stands in it, and a digest that anybody can recompute from it."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stageline.cost.entries import Affine
from stageline.engine.causes import CAUSES
from stageline.engine.types import RequestRecord, RunTotals, StageRecord
from stageline.errors import BadInput, UsageError
from stageline.plan.schema import Defaults, LinkPlan, Plan, StagePlan, Visit
from stageline.report.digest import digest_of
from stageline.report.run_writer import RunWriter
from stageline.report.rundir import read_events, read_run_pools, read_stages, read_summary
from stageline.report.summary import RunFacts

PLAN = Plan(
    model="m",
    device="d",
    stages=(StagePlan(name="a", layers=(0,)), StagePlan(name="b", layers=(1,))),
    visits=(
        Visit(stage=0, layers=(0,), cost=0, min_service_ns=1),
        Visit(stage=1, layers=(1,), cost=0, min_service_ns=1),
    ),
    links=(LinkPlan(latency_ns=1, bytes_per_s=1, bytes_per_token=1),) * 3,
    costs=(Affine(base_ns=1),),
    defaults=Defaults(microbatch=2, credits=3),
)
FACTS = RunFacts(
    engine="fake", seed=1, command="stageline run x", workload="w", rows={"accepted": 3}, wall_s=0.5, credits=3
)


def record(index: int, outcome: str = "finished") -> RequestRecord:
    return RequestRecord(
        index=index, replica=0, arrival_ns=index, admitted_ns=index + 1, first_token_ns=index + 2,
        last_token_ns=index + 12, prompt_tokens=3, output_tokens=2, preemptions=1,
        outcome=outcome,  # type: ignore[arg-type]
    )  # fmt: skip


def stage(index: int, replica: int = 0, busy: int = 60, empty: int = 20) -> StageRecord:
    idle: dict[str, int] = {**dict.fromkeys(CAUSES, 0), "empty": empty, "starved": 100 - busy - empty}
    return StageRecord(
        replica=replica, stage=index, window_ns=100, busy_ns=busy, idle_ns=idle, kv_peak_bytes=5, kv_budget_bytes=10,
        microbatches=4, visits=1,
    )  # fmt: skip


def totals(stages: tuple[StageRecord, ...], requests: int = 3) -> RunTotals:
    return RunTotals(
        window_start_ns=0, window_end_ns=10**9, stages=stages, requests=requests, microbatches=4, stage_visits=8,
        binding_stage=None,
    )  # fmt: skip


def write(directory: Path | None, order: list[int], arrivals: list[int] | None = None) -> str | None:
    with RunWriter(PLAN, directory) as writer:
        for index in arrivals or ():
            writer.arrived(index, 0)
        for index in order:
            writer.token(index, 12, None)
            writer.token(index, 22, 12)
            writer.request(record(index))
        return writer.finish(totals((stage(1), stage(0))), FACTS).digest


def test_the_digest_is_of_canonical_lines(tmp_path: Path) -> None:
    digest = write(tmp_path, [1, 0, 2])
    lines = [json.dumps(msgspec.to_builtins(record(i)), sort_keys=True, separators=(",", ":")) for i in range(3)]
    lines += [json.dumps(msgspec.to_builtins(stage(i)), sort_keys=True, separators=(",", ":")) for i in range(2)]
    expected = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    assert digest == digest_of(tmp_path) == expected
    assert (tmp_path / "requests.jsonl").read_text() == "".join(f"{line}\n" for line in lines[:3])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(6)), st.permutations(range(6)))
def test_no_order_changes_the_digest(tmp_path: Path, leaving: list[int], arrivals: list[int]) -> None:
    digest = write(tmp_path, leaving, arrivals)
    assert digest == digest_of(tmp_path) == write(None, leaving) == write(None, list(range(6)))
    written = [json.loads(line)["index"] for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert written == arrivals


def test_the_digest_sees_every_field(tmp_path: Path) -> None:
    digest = write(tmp_path, [0, 1, 2])
    requests = tmp_path / "requests.jsonl"
    text = requests.read_text()
    requests.write_text(text.replace('"preemptions":1', '"preemptions":2', 1))
    assert digest_of(tmp_path) != digest
    requests.write_text(text.replace('{"admitted', '{ "admitted'))
    assert digest_of(tmp_path) == digest  # spaces are no difference
    stages = tmp_path / "stages.json"
    stages.write_text(stages.read_text().replace('"busy_ns": 60', '"busy_ns": 61', 1))
    assert digest_of(tmp_path) != digest


def test_summary(tmp_path: Path) -> None:
    write(tmp_path, [0, 1, 2])
    summary = read_summary(tmp_path)
    assert summary.complete
    assert summary.requests == {
        "total": 3, "finished": 3, "refused": 0, "cancelled": 0, "failed": 0, "incomplete": 0,
    }  # fmt: skip
    assert (summary.output_tokens, summary.output_tokens_per_s, summary.emulated_s) == (6, 6.0, 1.0)
    assert (summary.ttft_s.p50, summary.tpot_s.max, summary.itl_s.mean) == (2e-9, 1e-8, 1e-8)
    assert (summary.e2e_s.p99, summary.queue_s.mean) == (1.2e-8, 1e-9)
    assert (summary.stages_total, summary.visits, summary.preemptions) == (2, 2, 3)
    assert summary.bubble_ratio == pytest.approx(0.25)  # 20 starved of 80, `empty` left out
    assert summary.kv_peak_ratio == 0.5
    assert summary.topology.plan_digest == PLAN.digest()
    assert read_run_pools(tmp_path).source == PLAN
    assert [s.stage for s in read_stages(tmp_path)] == [0, 1]


def test_a_broken_run_keeps_its_records_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, [0, 1, 2])
    with RunWriter(PLAN, tmp_path) as writer:
        for index in (0, 1, 2):
            writer.arrived(index, 0)
        writer.request(record(2))
        summary = writer.abort(FACTS)
    assert (summary.digest, summary.complete) == (None, False)
    assert read_summary(tmp_path).requests["total"] == 1
    assert len((tmp_path / "requests.jsonl").read_text().splitlines()) == 1
    assert not (tmp_path / "stages.json").exists()  # an earlier run's must not stay


def test_events_come_back_as_written(tmp_path: Path) -> None:
    with RunWriter(PLAN, tmp_path, events=True) as writer:
        observer = writer.stage_observer
        assert observer is not None
        observer.gap(0, 1, 5, {"starved": 3, "hop": 0})
        observer.served(0, 1, 1, 7, 6, 8, 9)
        writer.finish(totals(()), FACTS)
    gap, served = read_events(tmp_path)
    assert msgspec.to_builtins(gap) == {
        "kind": "gap",
        "replica": 0,
        "stage": 1,
        "start_ns": 5,
        "idle_ns": {"starved": 3},
    }
    assert msgspec.structs.astuple(served) == (0, 1, 1, 7, 6, 8, 9)


def test_damaged_directories(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"requests\.jsonl: can't be read"):
        digest_of(tmp_path)
    write(tmp_path, [0])
    (tmp_path / "requests.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match=r"requests\.jsonl:1: not a request record"):
        digest_of(tmp_path)
    (tmp_path / "requests.jsonl").write_text("{")
    with pytest.raises(BadInput, match=r"requests\.jsonl:1: not JSON"):
        digest_of(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(BadInput, match="not what a run writes"):
        read_summary(tmp_path)
    (tmp_path / "events.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match=r"events\.jsonl:1: not what a run writes"):
        list(read_events(tmp_path))


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(UsageError, match="can't be written"):
        RunWriter(PLAN, tmp_path / "x")
