"""`stageline tune` as users meet it, on the demo's own plan and trace."""

import json
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "run"
    workload = ["--workload", str(ROOT / "examples/traces/sample_azure.csv"), "--requests", "100"]
    assert run(["run", str(ROOT / "tests/data/by-kind.plan.json"), *workload, "-o", str(out)]) == 0
    return out


def test_the_demo_is_told_what_helps_and_never_what_harms(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(demo), "--budget", "9", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    found = json.loads((demo / "tune.json").read_text())
    helped = [m["flags"] for m in found["measured"] if m["gain"] > 0.01]
    assert any(flags.startswith("--batched-tokens ") for flags in helped)
    assert not any("--microbatch" in flags for flags in helped)
    assert found["best"]["figures"]["ttft_p50_s"] < found["before"]["ttft_p50_s"] / 2
    assert shown.rstrip().splitlines()[-1].endswith(found["command"].split()[-1])


def test_goodput_needs_an_objective(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(demo), "--objective", "goodput"]) == 2
    assert "give --slo" in capsys.readouterr().err


def test_a_directory_without_a_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(tmp_path)]) == 2
    assert "summary.json: can't be read" in capsys.readouterr().err
