"""Draft tokens from the command line: what is asked for, what is refused, and when they pay (docs/planning.md)."""

import json
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run
from tests.integration.cli.conftest import SPEC


def summary(capsys: pytest.CaptureFixture[str], plan: str, workload: str, *flags: str) -> dict:
    assert run(["run", plan, "--workload", workload, "--json", *flags]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_came_of_drafts_is_in_the_summary_and_in_the_report(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = summary(capsys, plan, SPEC)
    assert plain["speculation"] is None
    off = summary(capsys, plan, SPEC, "--speculate", "0")
    assert (off["digest"], off["speculation"]) == (plain["digest"], None)
    out = str(tmp_path / "run")
    drafting = ("--speculate", "3", "--acceptance", "2/3", "--draft-cost", "1us", "--paranoid")
    assert run(["run", plan, "--workload", SPEC, "-o", out, *drafting]) == 0
    assert "tokens per decode step" in capsys.readouterr().out
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert found["digest"] != plain["digest"]
    figures = found["speculation"]
    assert 0 < figures["accepted_tokens"] < figures["drafted_tokens"] <= 3 * figures["steps"]
    assert figures["accepted_ratio"] == figures["accepted_tokens"] / figures["drafted_tokens"]
    assert figures["tokens_per_step"] == 1 + figures["accepted_tokens"] / figures["steps"]
    assert run(["report", out, "--verify"]) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--speculate 4", "--acceptance"),
        ("--acceptance 0.5", "--speculate"),
        ("--draft-cost 1us", "--speculate"),
        ("--speculate 0 --acceptance 0.5", "--speculate"),
        ("--speculate -1 --acceptance 0.5", "0 to 64"),
        ("--speculate 65 --acceptance 0.5", "0 to 64"),
        ("--speculate 4 --acceptance 1.01", "from 0 to 1"),
        ("--speculate 4 --acceptance often", "not a positive number"),
        ("--speculate 4 --acceptance 0.5 --draft-cost 2s", "shorter"),
        ("--speculate 4 --acceptance 0.5 --draft-cost fast", "--draft-cost"),
    ],
)
def test_what_makes_no_sense_is_refused(plan: str, flags: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", plan, "--workload", SPEC, *flags.split()]) == 2
    assert said in capsys.readouterr().err


def test_no_draft_or_every_draft_may_be_right(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    never, always = (
        summary(capsys, plan, SPEC, "--speculate", "4", "--acceptance", p)["speculation"] for p in ("0.00", "1")
    )
    assert (never["accepted_tokens"], never["tokens_per_step"]) == (0, 1)
    assert always["accepted_ratio"] == 1


def test_drafts_pay_where_decoding_reads_and_cost_where_it_computes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of docs/planning.md, with fewer requests."""
    plan = str(tmp_path / "plan.json")
    assert run(["plan", "llama-3.1-8b", "h100-sxm", "--context", "1K", "--microbatch", "256", "-o", plan]) == 0
    capsys.readouterr()

    def rate(users: int, flags: str = "") -> float:
        load = f"closed:users={users},requests={users},input=128,output=64"
        found = summary(capsys, plan, load, "--batching", "greedy", "--credits", "1", *flags.split())
        return found["output_tokens_per_s"]

    many, few, poor = (f"--speculate {k} --acceptance {p}" for k, p in ((4, 0.7), (1, 0.7), (4, 0.3)))
    lone, crowd = ({flags: rate(users, flags) for flags in ("", many, few, poor)} for users in (1, 256))
    assert lone[""] < lone[poor] < lone[few] < lone[many]
    assert lone[many] > 2.2 * lone[""]
    assert crowd[poor] < crowd[many] < crowd[""] < 1.1 * crowd[few]
    slow = f"{many} --draft-cost 500us"
    assert rate(1, slow) / lone[many] < rate(256, slow) / crowd[many] < 1


def test_a_search_runs_its_divisions_with_drafts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kept = tmp_path / "trials.jsonl"
    words = ["search", "llama-3.1-8b", "h100-sxm", "--devices", "1", "--workload", "closed:users=1,input=64,output=64"]
    words += ["--requests", "2", "--jobs", "1", "--json", "--resume", str(kept)]

    def tpot_s(*flags: str) -> float:
        assert run([*words, *flags]) == 0
        (trial,) = json.loads(capsys.readouterr().out)["trials"]
        return trial["tpot_p50_s"]

    drafting = ("--speculate", "4", "--acceptance", "0.9")
    plain, drafted = tpot_s(), tpot_s(*drafting)
    assert drafted < plain / 2
    assert (tpot_s(), tpot_s(*drafting)) == (plain, drafted)
    assert len(kept.read_text().splitlines()) == 2  # each is a trial of its own, and neither was done twice
    # What a lone trip forbids without drafts, drafts may reach: the objective lies between the two.
    objective = ("--slo", f"tpot={int(1e6 * (plain + drafted) / 2)}us")
    assert run([*words, *objective]) == 4
    capsys.readouterr()
    assert tpot_s(*objective, *drafting) == drafted
