"""The API does what the commands do: same plans, same digests, refusals that name the argument."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stageline
from stageline.api.files import read_file
from stageline.cli.main import invoke as command
from stageline.errors import BadInput, DoesNotFit, UsageError
from stageline.units import NS_PER_S
from stageline.workload import open_workload

LOAD = "poisson:rate=20,requests=30,input=uniform(64,512),output=uniform(2,20)"


def test_a_plan_is_that_of_the_command(tmp_path: Path) -> None:
    made, written = tmp_path / "made.json", tmp_path / "written.json"
    words = ["--tp", "2", "--pp", "2", "--context", "32K", "--weights", "fp8", "--hop-latency", "3us"]
    assert command(["plan", "llama-3.1-70b", "h100-sxm", *words, "--axis-order", "pp,tp", "-o", str(made)]) == 0
    planned = stageline.plan_model(
        "llama-3.1-70b",
        "h100-sxm",
        tensor_parallel=2,
        stages=2,
        context_tokens=32768,
        weights="fp8",
        hop_latency_ns=3000,
        axes=("pp", "tp"),
    )
    planned.write(written)
    by_command, by_call = (json.loads(read_file(path)) for path in (made, written))
    assert by_command["info"].pop("command").startswith("stageline plan llama-3.1-70b h100-sxm --tp 2")
    assert by_command == by_call
    assert stageline.read_plan(written) == planned.plan
    assert (planned.report().devices, planned.device_map()["lm_head"]) == (4, 2)


def test_a_run_is_that_of_the_command(
    small: stageline.ModelPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "plan.json", tmp_path / "run"
    small.write(path)
    words = ["--workload", LOAD, "--seed", "7", "--kv", "grow", "--overhead", "20us", "--slo", "ttft=2s", "--json"]
    assert command(["run", str(path), *words]) == 0
    shown = json.loads(capsys.readouterr().out)
    for plan in (small, small.plan, path, str(path)):
        got = stageline.run(plan, LOAD, seed=7, kv="grow", overhead_ns=20_000, slo="ttft=2s", output=out)
        assert got.summary.digest == shown["digest"]
    assert got.summary.slo is not None and got.summary.slo.met
    assert got.summary.command.startswith("stageline.run ") and "--kv=grow" in got.summary.command
    assert stageline.read_run(out) == got
    assert [r.index for r in got.requests] == list(range(30))
    assert command(["report", str(out), "--verify", "--no-chart", "--no-html"]) == 0


def test_a_run_can_be_repeated_without_leaving_anything(small: stageline.ModelPlan) -> None:
    """In one process, hundreds of times: no run knows of the one before."""
    runs = [stageline.run(small, LOAD, seed=seed % 2, keep_requests=False) for seed in range(20)]
    assert len({run.summary.digest for run in runs[::2]}) == len({run.summary.digest for run in runs[1::2]}) == 1
    assert runs[0].summary.digest != runs[1].summary.digest
    assert runs[0].requests == ()


def test_an_opened_workload_can_be_run(small: stageline.ModelPlan) -> None:
    opened = open_workload(LOAD, seed=3)
    assert stageline.run(small, opened, seed=3).summary.digest == stageline.run(small, LOAD, seed=3).summary.digest


def test_rows_have_latencies_in_seconds(small: stageline.ModelPlan) -> None:
    run = stageline.run(small, LOAD)
    for record, row in zip(run.requests, run.rows(), strict=True):
        assert record.first_token_ns is not None
        assert row["ttft_s"] == (record.first_token_ns - record.arrival_ns) / NS_PER_S
        assert row["outcome"] == "finished"


def test_a_data_frame_where_pandas_is_there(small: stageline.ModelPlan) -> None:
    pandas = pytest.importorskip("pandas")
    frame = stageline.run(small, LOAD).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 30 and frame.index.name == "index" and frame["ttft_s"].notna().all()


def test_what_pandas_is_given(small: stageline.ModelPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frame:
        def __init__(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
            self.rows, self.columns = rows, columns

        def set_index(self, name: str) -> "Frame":
            assert name == "index"
            return self

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=Frame))
    run = stageline.run(small, LOAD)
    frame = run.to_pandas()
    assert frame.rows == run.rows()
    assert set(frame.columns) == set(frame.rows[0])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        run.to_pandas()


def test_runs_side_by_side(small: stageline.ModelPlan, tmp_path: Path) -> None:
    kept = stageline.run(small, LOAD, output=tmp_path / "a")
    changed = stageline.run(small, LOAD, credits=1)
    found = stageline.compare(tmp_path / "a", kept, changed)
    assert found.names[:2] == [str(tmp_path / "a")] * 2
    assert ("credits", [str(kept.summary.credits)] * 2 + ["1"]) in found.changes
    with pytest.raises(UsageError, match="two run directories"):
        stageline.compare(kept)


def test_a_search_is_that_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--workload", LOAD, "--requests", "10", "--jobs", "1", "--json", "--context", "16K"]
    assert command(["search", "llama-3.1-8b", "h100-sxm", "--devices", "1..2", *words]) == 0
    shown = json.loads(capsys.readouterr().out)
    kept = tmp_path / "trials.jsonl"
    for _ in range(2):
        found = stageline.search(
            "llama-3.1-8b", ["h100-sxm"], devices=range(1, 3), workload=LOAD, requests=10, context_tokens=16384,
            resume=kept,
        )  # fmt: skip
        assert [trial.key for trial in found.trials] == [trial["key"] for trial in shown["trials"]]
    assert len(kept.read_text().splitlines()) == len(found.trials)
    assert {trial.name for trial in found.front()} <= {trial.name for trial in found.trials}
    assert [trial.devices for trial in found.best_by_devices()] == [1, 2]


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"devcies": 2}, UsageError, "no keyword 'devcies': did you mean devices"),
        ({"devices": 2.5}, UsageError, "plan_model: devices=2.5: give a whole number or None"),
        ({"devices": 0}, UsageError, "--devices 0"),
        ({"devices": 3, "stages": 2}, UsageError, "--devices 3: 2 stages"),
        ({"placement": "best"}, UsageError, "placement='best': give 'fewest', 'by-kind' or 'interleaved'"),
        ({"weights": "int3"}, BadInput, "int3"),
        ({"network": "string"}, BadInput, "string"),
        ({"axes": ("tp", "tp")}, UsageError, "--axis-order tp,tp"),
        ({"hop_latency_ns": -1}, UsageError, "--hop-latency -1"),
        ({"memory_share": 0.01}, DoesNotFit, "bytes"),
    ],
)
def test_keywords_of_a_plan_that_are_refused(keywords: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        stageline.plan_model("llama-3.1-8b", "h100-sxm", **keywords)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"credit": 2}, "did you mean credits"),
        ({"credits": 0}, "run: credits=0: give a whole number from 1"),
        ({"kv": "shrink"}, "--kv shrink"),
        ({"seed": -1}, "--seed"),
        ({"batching": "slo"}, "--slo tpot=50ms"),
        ({"balance": "prefix", "prefix_cache": False}, "--prefix-cache"),
        ({"speculate": 4}, "--acceptance"),
        ({"draft_ns": 4}, "--speculate"),
        ({"requests": 0}, "--requests"),
        ({"events": True}, "-o DIR"),
        ({"slo": "soon"}, "--slo"),
    ],
)
def test_keywords_of_a_run_that_are_refused(small: stageline.ModelPlan, keywords: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        stageline.run(small, LOAD, **keywords)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"devices": 0}, UsageError, "--devices"),
        ({"devices": 2, "microbatches": (0,)}, UsageError, "--microbatches"),
        ({"devices": 2, "tensor_parallel": 2}, UsageError, "no keyword 'tensor_parallel'"),
        ({"devices": 2, "jobs": 0}, UsageError, "--jobs"),
        ({"devices": 2, "memory_share": 0.01}, DoesNotFit, "none of the 3 divisions of 2 device(s)"),
    ],
)
def test_keywords_of_a_search_that_are_refused(keywords: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        stageline.search("llama-3.1-8b", "h100-sxm", workload=LOAD, **keywords)
    assert says in str(raised.value)
