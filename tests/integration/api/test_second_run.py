"""The events and laws of a cluster's run, by a second run in this process: compared, or not kept."""

import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stageline
from stageline.cluster import client_run
from stageline.engine import inprocess
from stageline.engine.types import Observer, Request, RequestRecord, RunTotals
from stageline.errors import LawBroken, RunFailed, UsageError
from stageline.report.inside import InsideWriter
from stageline.report.rundir import read_summary
from stageline.testing import uniform_plan
from stageline.workload import open_workload

PLAN = uniform_plan(
    2, service_ns=1000, token_ns=10, latency_ns=100, bytes_per_token=10, kv_budget_bytes=10**6, kv_block_bytes=160,
    microbatch=2,
)  # fmt: skip
SPEC = "poisson:rate=100000,requests=40,input=20,output=5"
BROKEN_OFF = ["plan.json", "requests.jsonl", "summary.json"]


class Cluster:
    """In the place of a cluster: this process, which may get request `other` wrong, or the end of the run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.other, self.more = -1, 0
        monkeypatch.setattr(client_run, "run_on_cluster", self.run)

    def run(self, plan: Any, scheduling: Any, workload: Any, *, seed: int, observer: Observer, **_: Any) -> RunTotals:
        """As `run_on_cluster`."""
        self.observer = observer
        self.token = observer.token
        totals = inprocess.run(plan, scheduling, workload, seed=seed, observer=self)
        return msgspec.structs.replace(totals, window_end_ns=totals.window_end_ns + self.more)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        late = (record.last_token_ns or 0) + 1
        wrong = record.index == self.other
        self.observer.request(msgspec.structs.replace(record, last_token_ns=late) if wrong else record)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


class Moody:
    """A queueing policy whose order is another one each time."""

    seen = 0

    def key(self, request: Request) -> int:
        """See QueueingPolicy."""
        Moody.seen += 1
        return -Moody.seen if Moody.seen > 40 else Moody.seen


def run(out: Path, workload: Any = SPEC, **given: Any) -> None:
    stageline.run(PLAN, workload, cluster="127.0.0.1:1", output=out, events=True, **given)


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir())


def test_what_is_equal_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    stageline.run(PLAN, SPEC, output=tmp_path / "here", events=True)
    run(tmp_path / "there")
    assert read_summary(tmp_path / "there").digest == read_summary(tmp_path / "here").digest
    for name in ("events.jsonl", "microbatches.jsonl"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


@pytest.mark.parametrize(
    ("wrong", "where"),
    [({"other": 7}, "at request 7: which is a bug"), ({"more": 1}, "in what the stages did: which is a bug")],
)
def test_what_is_not_equal_is_not_kept(cluster: Cluster, tmp_path: Path, wrong: dict[str, int], where: str) -> None:
    for name, value in wrong.items():
        setattr(cluster, name, value)
    with pytest.raises(RunFailed, match=where):
        run(tmp_path / "run")
    assert names(tmp_path / "run") == BROKEN_OFF
    summary = read_summary(tmp_path / "run")
    assert (summary.complete, summary.digest) == (False, None)


def test_a_policy_that_depends_on_more_than_its_arguments_is_named(cluster: Cluster, tmp_path: Path) -> None:
    Moody.seen = 0
    with pytest.raises(RunFailed, match=r"test_second_run:Moody must decide by its arguments alone"):
        run(tmp_path / "run", queueing=f"{__name__}:Moody")
    assert names(tmp_path / "run") == BROKEN_OFF


def test_a_trace_that_changes_meanwhile_is_named(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = '{"arrival_ns": %d, "prompt_tokens": 20, "output_tokens": %d}\n'
    trace.write_text("".join(rows % (i, 5) for i in range(9)))
    look_inside = stageline.report.run_writer.RunWriter.look_inside

    def changed(writer: Any) -> InsideWriter:
        trace.write_text("".join(rows % (i, 6) for i in range(9)))
        return look_inside(writer)

    monkeypatch.setattr("stageline.report.run_writer.RunWriter.look_inside", changed)
    with pytest.raises(RunFailed, match=r"trace\.jsonl has changed since the run began"):
        run(tmp_path / "run", str(trace))


def test_a_workload_that_cannot_be_read_twice_is_refused_before_the_run(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a workload that is open can be run once"):
        run(tmp_path / "run", open_workload(SPEC))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_end_in_the_second_run_leaves_an_incomplete_one(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def ends(inside: InsideWriter, record: RequestRecord) -> None:
        if record.index == 20 and inside.stage_observer is not None:
            raise error

    monkeypatch.setattr(InsideWriter, "request", ends)
    wanted = r"can't be written: No space left on device; the run is incomplete" if error.args else None
    with pytest.raises((RunFailed, KeyboardInterrupt), match=wanted):
        run(tmp_path / "run")
    assert names(tmp_path / "run") == sorted([*BROKEN_OFF, "events.jsonl", "microbatches.jsonl"])
    assert read_summary(tmp_path / "run").complete is False
    assert len((tmp_path / "run" / "requests.jsonl").read_text().splitlines()) == 40


def test_the_laws_of_a_clusters_run_are_checked_in_this_process(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []
    monkeypatch.setattr(inprocess, "check_all", lambda *machines: checked.append(machines))
    watched = stageline.run(PLAN, SPEC, cluster="127.0.0.1:1", paranoid=True)
    assert checked
    assert watched.summary.digest == stageline.run(PLAN, SPEC).summary.digest

    def broken(*machines: object) -> None:
        raise LawBroken("L1")

    monkeypatch.setattr(inprocess, "check_all", broken)
    with pytest.raises(LawBroken):
        run(tmp_path / "broken", paranoid=True)
    assert read_summary(tmp_path / "broken").complete is False
