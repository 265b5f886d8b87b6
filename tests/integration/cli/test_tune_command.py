"""`stageline tune` as users meet it, on the demo's own plan and trace."""

import io
import json
import shlex
from contextlib import redirect_stdout
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


@pytest.fixture(scope="module")
def shown(demo: Path) -> str:
    """What tuning the demo prints."""
    with redirect_stdout(io.StringIO()) as out:
        assert run(["tune", str(demo), "--budget", "12", "--jobs", "1"]) == 0
    return out.getvalue()


def test_the_demo_is_told_what_helps_and_never_what_harms(demo: Path, shown: str) -> None:
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


def test_advice_about_load_is_a_command_that_gives_its_figures(demo: Path, shown: str, tmp_path: Path) -> None:
    found = json.loads((demo / "tune.json").read_text())
    assert found["load"][0]["flags"] == "--replicas 2"
    assert found["left_out"]["--rate-scale 4/5"] == "the budget is spent"
    for number, advised in enumerate(found["load"]):
        assert f"    {advised['command']}" in shown.splitlines(), "a command stands on a line of its own, unwrapped"
        out = tmp_path / str(number)
        assert run([*shlex.split(advised["command"])[1:], "-o", str(out)]) == 0
        assert json.loads((out / "summary.json").read_text())["digest"] == advised["figures"]["digest"]


def test_less_load_is_tried_too(tmp_path: Path) -> None:
    plan = str(ROOT / "tests/data/by-kind.plan.json")
    load = ["--workload", "poisson:rate=40,input=256,output=16,requests=24", "--replicas", "2"]
    assert run(["run", plan, *load, "-o", str(tmp_path)]) == 0
    assert run(["tune", str(tmp_path), "--jobs", "1", "--budget", "24"]) == 0
    found = json.loads((tmp_path / "tune.json").read_text())
    assert [m["flags"] for m in found["load"]] == ["--replicas 3", "--replicas 1", "--rate-scale 4/5"]
    for advised in found["load"]:
        assert run([*shlex.split(advised["command"])[1:], "-o", str(tmp_path / "again")]) == 0
        again = json.loads((tmp_path / "again" / "summary.json").read_text())
        assert again["digest"] == advised["figures"]["digest"], advised["command"]


def test_trials_are_judged_by_the_windows_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first half of a run is warm-up: neither the run nor its trials count its tokens."""
    load = ["--workload", "poisson:rate=40,input=256,output=16", "--requests", "80", "--warmup", "40"]
    plan = str(ROOT / "tests/data/by-kind.plan.json")
    assert run(["run", plan, *load, "-o", str(tmp_path)]) == 0
    assert run(["tune", str(tmp_path), "--budget", "4", "--jobs", "1"]) == 0
    summary, found = (json.loads((tmp_path / name).read_text()) for name in ("summary.json", "tune.json"))
    rate = summary["measured"]["served_output_tokens_per_s"]
    assert found["before"]["output_tokens_per_s"] == rate != summary["output_tokens_per_s"]
    assert "--warmup 40" in found["command"]
    best = found["best"] or found["measured"][0]
    words = shlex.split(found["command"] if found["best"] else f"{found['command']} {best['flags']}")
    assert run([*words[1:], "-o", str(tmp_path / "again")]) == 0
    again = json.loads((tmp_path / "again" / "summary.json").read_text())
    assert again["measured"]["served_output_tokens_per_s"] == best["figures"]["output_tokens_per_s"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("sizes", "words", "code", "says"),
    [
        ("input=200000,output=2", [], 1, "no request finished"),
        ("input=200,output=1", ["--objective", "tpot"], 0, "no request had two tokens"),
    ],
)
def test_a_run_without_the_figure_is_refused(
    sizes: str, words: list[str], code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, out = str(tmp_path / "plan.json"), str(tmp_path / "run")
    assert run(["plan", "llama-3.1-8b", "h100-sxm", "-o", plan]) == 0
    assert run(["run", plan, "--workload", f"poisson:rate=4,requests=3,{sizes}", "-o", out]) == code
    assert run(["tune", out, *words]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
