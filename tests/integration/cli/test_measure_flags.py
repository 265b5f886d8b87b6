"""`stageline run` with --warmup, --measure-window and --price, and what `compare` and `report` make of it."""

import json
from pathlib import Path

import pytest

import stageline as api
from stageline.cli.main import invoke as stageline
from stageline.report.rundir import read_summary
from tests.integration.cli.conftest import PLAN, SPEC


def test_the_window_changes_rates_and_nothing_else(plan: str, tmp_path: Path) -> None:
    for name, flags in (("a", []), ("b", ["--warmup", "10", "--price", "3.6"]), ("c", ["--measure-window", "auto"])):
        assert stageline(["run", plan, "--workload", SPEC, "-o", str(tmp_path / name), *flags]) == 0
    a, b, c = (read_summary(tmp_path / name) for name in "abc")
    assert a.digest == b.digest == c.digest
    assert (a.ttft_s, a.requests_per_s) == (b.ttft_s, b.requests_per_s)
    assert a.measured is not None and b.measured is not None and c.measured is not None
    assert b.measured.from_s > a.measured.from_s == 0
    assert c.measured.stationary is False and "no steady state" in c.measured.remark  # 30 requests are too few
    assert b.cost is not None and b.cost.per_hour == pytest.approx(
        3.6 * PLAN.replicas * sum(s.devices for s in PLAN.stages)
    )
    assert b.rerun is not None and "--warmup 10" in b.rerun.command(plan, b.rerun.scheduling)


def test_report_and_compare_show_offered_and_served_apart(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(tmp_path / name) for name in "ab"]
    assert stageline(["run", plan, "--workload", SPEC, "-o", runs[0], "--price", "2"]) == 0
    assert stageline(["run", plan, "--workload", SPEC, "-o", runs[1], "--rate-scale", "2", "--price", "2"]) == 0
    capsys.readouterr()
    assert stageline(["report", runs[0], "--no-chart", "--no-html"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name}" in shown for name in ("measured in", "offered", "served", "cost"))
    assert stageline(["compare", *runs]) == 0
    compared = capsys.readouterr().out
    for row in ("offered requests/s", "served requests/s", "served tokens/s", "cost per 1M tokens"):
        assert row in compared
    assert "e+" not in compared


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--warmup", "soon"], "--warmup"),
        (["--measure-window", "auto", "--warmup", "3"], "give one of them"),
        (["--measure-window", "3s..1s"], "--measure-window"),
        (["--price", "0"], "--price"),
    ],
)
def test_what_can_not_be_measured_is_refused(
    plan: str, flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stageline(["run", plan, "--workload", SPEC, *flags]) == 2
    assert says in capsys.readouterr().err


def test_the_api_measures_as_the_command_does(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = api.run(plan, SPEC, warmup="10", price=2)
    assert stageline(["run", plan, "--workload", SPEC, "--warmup", "10", "--price", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert run.summary.measured is not None and run.summary.cost is not None
    assert printed["measured"]["served_requests_per_s"] == run.summary.measured.served_requests_per_s
    assert printed["cost"]["per_million_output_tokens"] == run.summary.cost.per_million_output_tokens


@pytest.mark.parametrize(
    "load",
    [
        "poisson:rate=8,input=512,output=16",
        "poisson:rate=400,input=512,output=64",
        "closed:users=4,input=512,output=16",
    ],
    ids=["long", "brief", "closed"],
)
def test_every_command_takes_rates_and_prices_in_one_window(load: str, tmp_path: Path) -> None:
    """What `run` prints of a run is what `sweep`, `search` and `tune` say of the same one."""
    plan = api.plan_model("llama-3.1-8b", "h100-sxm")
    ran = api.run(plan, load, requests=40, slo="ttft=1s", price=2, output=tmp_path / "run").summary
    assert ran.measured is not None and ran.cost is not None and ran.slo is not None
    trial = api.sweep(plan, load, requests=40, slo="ttft=1s", over={"credits": [1]}).curves[0].points[0].trial
    question = {"workload": load, "requests": 40, "slo": "ttft=1s", "price": 2, "headroom": False}
    found = api.search("llama-3.1-8b", "h100-sxm", devices=1, **question).best()  # type: ignore[arg-type]
    tuned = api.tune(tmp_path / "run", budget=2).before
    m = ran.measured
    assert ran.slo.goodput_requests_per_s == m.goodput_requests_per_s
    assert found is not None
    for t in (trial, found):
        assert (t.served_requests_per_s, t.offered_requests_per_s) == (
            m.served_requests_per_s,
            m.offered_requests_per_s,
        )
        assert (t.goodput_requests_per_s, t.attainment) == (m.goodput_requests_per_s, ran.slo.attainment)
        assert t.output_tokens_per_s == m.served_output_tokens_per_s
    assert found.cost_per_million_tokens == pytest.approx(ran.cost.per_million_output_tokens)
    assert tuned.cost_device_hours == pytest.approx(ran.cost.per_million_output_tokens / 2)
    assert (tuned.output_tokens_per_s, tuned.goodput_requests_per_s) == (
        m.served_output_tokens_per_s, m.goodput_requests_per_s,
    )  # fmt: skip


def test_a_run_prints_one_goodput_and_says_of_what_each_rate_is(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert stageline(["run", plan, "--workload", SPEC, "--slo", "ttft=10s", "--warmup", "5"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("goodput") == 1 and "that kept the objective" in shown
    assert "whole run" in shown and "fill and drain included" in shown
    assert "good of the 25 that arrived in the measurement window" in shown
