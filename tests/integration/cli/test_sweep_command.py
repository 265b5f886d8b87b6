"""`stageline sweep` as users meet it."""

import json
from pathlib import Path

import pytest

import stageline
from stageline.api.sweeping import knee
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
        (["--over", "nothing=2"], "overhead, front-end, prefix-cache"),
        (["--over", "kv=never"], "never"),
        (["--over", "prefix-cache=maybe"], "give on or off"),
        (["--over", "acceptance=2", "--speculate", "2"], "--over acceptance"),
        (["--over", "overhead=50"], "--over overhead"),
        (["--over", "speculate=2"], "--acceptance"),
        (["--over", "credits=1,2", "--credits", "4"], "--credits is given"),
        (["--over", "max-num-seqs=1,2", "--max-running", "4"], "--max-running is given"),
        (["--over", "rate-scale=1,2", "--rate-scale", "4"], "--rate-scale is given"),
        (["--over", "prefix-cache=on", "--over", "enable-prefix-caching=off"], "are the same"),
        (["--over", "rate=2", "--slo", "ttft=1s", "--until", "ttft=1s"], "--until"),
        (["--over", "rate=2", "--jobs", "0"], "--jobs"),
        (["--until", "nonsense"], "--until"),
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


@pytest.mark.parametrize(
    ("curve", "bend"),
    [
        ([(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)], None),
        ([(1, 1.0), (2, 2.04), (3, 2.97), (4, 4.0)], None),  # straight, but for what a few requests make of it
        ([(1, 1.0), (2, 2.0), (3, 2.1), (4, 2.1)], 2),
        ([(1, 1.0), (2, 2.0), (3, 3.0), (4, 3.1)], 3),
        ([(1, 1.0), (2, 1.0), (3, 2.0)], None),
        ([(1, 3.0), (2, 2.0), (3, 1.0)], None),
        ([(1, 0.0), (2, 0.0), (3, 0.0)], None),
    ],
)
def test_a_knee_is_where_more_begins_to_give_less_than_half(curve: list[tuple[int, float]], bend: int | None) -> None:
    assert knee(curve) == bend


def test_a_sweep_that_never_keeps_its_objective_names_no_best_and_no_knee(
    capsys: pytest.CaptureFixture[str], plan: Path
) -> None:
    words = ["--workload", LOAD, "--requests", "60", "--jobs", "1", "--slo", "ttft=15ms", "--over", "rate=100..900:4"]
    assert run(["sweep", str(plan), *words]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no rate that was tried keeps the objective" in shown
    assert "knee" not in shown and "most goodput" not in shown


def test_loads_with_until_are_where_the_limit_is_sought(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    limit = sweep(capsys, plan, "--until", "ttft=100ms", "--over", "rate=4,300")["curves"][0]["limit"]  # type: ignore[index]
    assert {4, 300} <= {load for load, _ in limit["tried"]}
    assert 4 < limit["kept"] < limit["missed"] < 300
    assert limit["missed"] / limit["kept"] < 1.03


@pytest.mark.parametrize(
    ("words", "heading", "values"),
    [
        (["--over", "prefix-cache=off,on"], "prefix-cache", ["off", "on"]),
        (["--over", "enable-prefix-caching=off,on", "--snapshot-tokens", "4096"], "prefix-cache", ["off", "on"]),
        (["--over", "speculate=0,2", "--acceptance", "0.7"], "speculate", ["0", "2"]),
        (["--over", "acceptance=0.5..0.9:3", "--speculate", "2"], "acceptance", ["0.5", "0.7", "0.9"]),
        (["--over", "overhead=0,50us,1ms"], "overhead", ["0s", "50us", "1ms"]),
        (["--over", "max-num-seqs=4,8"], "max-num-seqs", ["4", "8"]),
    ],
)
def test_an_axis_is_a_flag_with_values_as_the_flag_takes_them(
    words: list[str], heading: str, values: list[str], capsys: pytest.CaptureFixture[str], plan: Path
) -> None:
    assert run(["sweep", str(plan), "--workload", LOAD, "--requests", "8", "--jobs", "1", *words]) == 0
    shown = capsys.readouterr().out
    assert heading in shown
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("│")] == values


def test_a_closed_loop_is_offered_nothing(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    words = ["--workload", "closed:users=2,input=512,output=16", "--requests", "20", "--jobs", "1"]
    assert run(["sweep", str(plan), *words, "--over", "users=1,2"]) == 0
    shown = capsys.readouterr().out
    assert "served req/s" in " ".join(shown.split()) and "offered" not in shown
