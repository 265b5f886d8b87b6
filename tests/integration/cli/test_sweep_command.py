"""`stageline sweep` as users meet it."""

import json
from pathlib import Path

import pytest

import stageline
from stageline.cli.main import invoke as run

LOAD = "poisson:rate=8,input=512,output=16"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    stageline.plan_model("llama-3.1-8b", "h100-sxm").write(path)
    return path


def sweep(capsys: pytest.CaptureFixture[str], plan: Path, *words: str, code: int = 0) -> dict[str, object]:
    found = run(["sweep", str(plan), "--workload", LOAD, "--requests", "60", "--jobs", "1", "--json", *words])
    assert found == code
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_curve_bends_where_the_load_is_too_much(
    capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path
) -> None:
    chart = tmp_path / "curve.svg"
    found = sweep(capsys, plan, "--over", "rate=4..400:5", "--slo", "ttft=100ms", "--plot", str(chart))
    (curve,) = found["curves"]  # type: ignore[misc]
    rates = [point["values"]["rate"] for point in curve["points"]]
    assert rates == [4, 103, 202, 301, 400]
    good = {point["values"]["rate"]: point["trial"]["goodput_requests_per_s"] for point in curve["points"]}
    assert curve["best"] == max(good, key=lambda rate: good[rate])
    assert good[curve["enough"]] >= 0.95 * good[curve["best"]]
    assert chart.stat().st_size > 1000
    words = ["sweep", str(plan), "--workload", LOAD, "--requests", "60", "--jobs", "1", "--over", "rate=4,103,400"]
    assert run(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "most tokens/s: rate=" in shown and "95 % of it: from rate=" in shown


def test_every_value_of_a_setting_has_its_own_limit(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    """The limit is one: runs at it and above it, by hand, keep and miss the objective."""
    found = sweep(capsys, plan, "--until", "ttft=100ms", "--over", "batched-tokens=256,2048")
    assert found["axes"] == ["rate", "batched_tokens"]
    for curve in found["curves"]:  # type: ignore[attr-defined]
        limit = curve["limit"]
        for rate, met in ((limit["kept"], True), (limit["missed"], False)):
            by_hand = stageline.run(
                plan, f"poisson:rate={round(rate, 3)},input=512,output=16", requests=60, slo="ttft=100ms",
                batched_tokens=curve["other"],
            )  # fmt: skip
            assert by_hand.summary.slo is not None and by_hand.summary.slo.met is met


def test_users_are_whole(plan: Path) -> None:
    found = stageline.sweep(
        plan, "closed:users=2,requests=40,input=512,output=16", until="tpot=8ms,attainment=0.9", requests=40
    )  # fmt: skip
    limit = found.curves[0].limit
    assert limit is not None
    assert all(load == int(load) for load, _ in limit.tried)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "--over"),
        (["--over", "rate"], "--over"),
        (["--over", "rate=8..2"], "8..2"),
        (["--over", "rate=x"], "--over rate"),
        (["--over", "rate=2", "--over", "rate=3"], "given twice"),
        (["--over", "rate=2", "--over", "rate-scale=3"], "both change the load"),
        (["--over", "users=2"], "has no users="),
        (["--over", "nothing=2"], "no setting of a run"),
        (["--over", "kv=never"], "never"),
        (["--over", "rate=2", "--slo", "ttft=1s", "--until", "ttft=1s"], "--until"),
        (["--over", "rate=2", "--jobs", "0"], "--jobs"),
        (["--until", "nonsense"], "--slo"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], plan: Path, words: list[str], named: str) -> None:
    assert run(["sweep", str(plan), "--workload", LOAD, "--requests", "10", "--jobs", "1", *words]) == 2
    assert named in capsys.readouterr().err


def test_an_objective_that_no_load_keeps_is_the_exit_code(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    assert run(["sweep", str(plan), "--workload", LOAD, "--requests", "10", "--jobs", "1", "--until", "ttft=1us"]) == 3
    assert "no load" in capsys.readouterr().err


def test_a_sweep_that_serves_nobody_is_no_success(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    load = "poisson:rate=4,input=200000,output=4"
    assert run(["sweep", str(plan), "--workload", load, "--requests", "3", "--jobs", "1", "--over", "rate=1,2"]) == 1
    assert "no request finished at any point" in " ".join(capsys.readouterr().err.split())
