"""`stageline run` and `report` from the command line: files, figures, exit codes, what goes where."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stageline.cli.main import invoke as stageline
from stageline.report.digest import digest_of
from tests.integration.cli.conftest import PLAN, SPEC


def test_run_and_report(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert stageline(["run", plan, "--workload", SPEC, "-o", str(out), "--events", "--slo", "ttft=1s"]) == 0
    printed = capsys.readouterr()
    assert "30 of 30 finished" in printed.out
    assert printed.err == ""  # quiet where there is no terminal
    names = {path.name for path in out.iterdir()}
    assert names == {"plan.json", "summary.json", "requests.jsonl", "stages.json", "events.jsonl", "microbatches.jsonl"}
    summary = json.loads((out / "summary.json").read_text())
    assert summary["digest"] == digest_of(out)
    assert summary["slo"]["met"] is True
    assert stageline(["report", str(out), "--verify"]) == 0
    again = capsys.readouterr()
    assert set(printed.out.splitlines()) <= set(again.out.splitlines())  # with events, the groups of microbatches, too
    assert (out / "pipeline.svg").exists()
    assert (out / "pipeline.png").exists()


def test_a_terminal_sees_a_bar(plan: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    assert stageline(["run", plan, "--workload", SPEC, "--json"]) == 0
    printed = capsys.readouterr()
    assert "arrivals" in printed.err
    assert "30 requests done" in printed.err
    json.loads(printed.out)


def test_summary_has_the_promised_fields(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert stageline(["run", plan, "--workload", SPEC, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    promised = {
        "digest", "engine", "seed", "command", "topology", "requests", "output_tokens", "emulated_s", "wall_s",
        "output_tokens_per_s", "ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "stages_total", "visits",
        "bubble_ratio", "binding_stage",
    }  # fmt: skip
    assert promised <= summary.keys()
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        assert summary[name].keys() == {"mean", "p50", "p90", "p95", "p99", "max"}
        assert summary[name]["p50"] <= summary[name]["p99"] <= summary[name]["max"]


def test_files_do_not_change_the_digest(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digests = set()
    for extra in ([], ["-o", str(tmp_path / "a")], ["-o", str(tmp_path / "a"), "--events"], ["--paranoid"]):
        assert stageline(["run", plan, "--workload", SPEC, "--json", *extra]) == 0
        digests.add(json.loads(capsys.readouterr().out)["digest"])
    assert len(digests) == 1
    assert stageline(["run", plan, "--workload", SPEC, "--json", "--seed", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] not in digests


def test_a_missed_objective_is_exit_code_3(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert stageline(["run", plan, "--workload", SPEC, "--slo", "ttft=1ns", "-o", str(out)]) == 3
    printed = capsys.readouterr()
    assert "SLO missed" in printed.err
    assert "digest" in printed.out
    assert (out / "summary.json").exists()


def test_a_bad_row_in_the_middle_leaves_an_incomplete_run(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.csv"
    rows = "".join(f"{i},5,2\n" for i in range(3000))
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows + "3000,x,2\n")
    out = tmp_path / "run"
    assert stageline(["run", plan, "--workload", str(trace), "-o", str(out)]) == 2
    error = capsys.readouterr().err
    assert "t.csv:3002, column num_prefill_tokens" in error
    assert len(error.splitlines()) == 1
    assert json.loads((out / "summary.json").read_text())["complete"] is False
    assert stageline(["report", str(out)]) == 2
    assert "broke off" in capsys.readouterr().err
    assert stageline(["run", plan, "--workload", str(trace), "--skip-bad-rows", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workload_rows"]["skipped_bad"] == 1


@pytest.mark.parametrize(
    ("damage", "place", "reason"),
    [
        (lambda lines: [*lines[:2], lines[2][:30], *lines[3:]], "requests.jsonl:3", "not what a run writes"),
        (lambda lines: [*lines[:-1], lines[-1][:-9]], "requests.jsonl:10", "not what a run writes"),
        (lambda lines: [lines[0].replace('"index":0', '"index":"x"'), *lines[1:]], "requests.jsonl:1", "$.index"),
        (lambda lines: lines[:7], "requests.jsonl", "summary.json says 10 requests (got 7)"),
    ],
    ids=["a cut line", "a cut end", "a wrong value", "missing lines"],
)
def test_a_damaged_run_is_refused_before_anything_is_printed(
    plan: str, tmp_path: Path, damage: Callable[[list[str]], list[str]], place: str, reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "run"
    assert stageline(["run", plan, "--workload", SPEC, "--requests", "10", "-o", str(out)]) == 0
    path = out / "requests.jsonl"
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    capsys.readouterr()
    for more in ([], ["--no-chart", "--no-html"]):
        assert stageline(["report", str(out), *more]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert f"{out}/{place}" in told.err
        assert reason in told.err
        assert "run it again with -o" in told.err
        assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize("place", ["host:70000", "host", "http://host:1"])
def test_a_cluster_address_that_is_none(plan: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert stageline(["run", plan, "--workload", SPEC, "--cluster", place]) == 2
    assert "--cluster" in (error := capsys.readouterr().err) and "localhost:50051" in error


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--workload", "nothing.csv"], "no such file"),
        (["--workload", SPEC, "--credits", "0"], "--credits: not a positive number"),
        (["--workload", SPEC, "--credits", str(1 << 41)], "--credits: too large"),
        (["--workload", ""], "--workload: it is empty"),
        (["--workload", "poisson:rate=1e3"], "rate: written with an exponent"),
        (["--workload", SPEC, "--rate-scale", "1" * 13], "--rate-scale: has too many digits"),
        (["--workload", SPEC, "--batching", "slo"], "--batching slo needs a TPOT"),
        (["--workload", SPEC, "--batching", "huge"], "huge"),
        (["--workload", SPEC, "--slo", "x"], "--slo: unknown objective"),
        (["--workload", SPEC, "--events"], "--events writes events.jsonl"),
        (["--workload", SPEC, "--overhead", "5"], "--overhead: not a number with a unit"),
        (["--workload", SPEC, "--overhead", "99999h"], "--overhead: above 15 minutes"),
        (["--workload", SPEC, "--rate-scale", "0"], "--rate-scale: not a positive number"),
        (["--workload", SPEC, "--requests", "0"], "--requests: not a positive number"),
        (["--workload", SPEC, "--seed", "-1"], "--seed: not between"),
        (["--workload", SPEC, "--policy", "no.such:Thing"], "no.such:Thing"),
        ([], "--workload"),
    ],
)
def test_bad_flags(plan: str, capsys: pytest.CaptureFixture[str], flags: list[str], reason: str) -> None:
    assert stageline(["run", plan, *flags]) == 2
    printed = capsys.readouterr()
    assert reason in printed.err
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


def test_scheduling_flags_reach_the_engine(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    def microbatches(*flags: str) -> tuple[int, int]:
        assert stageline(["run", plan, "--workload", SPEC, "--rate-scale", "100", "--json", *flags]) == 0
        summary = json.loads(capsys.readouterr().out)
        return summary["microbatches"], summary["credits"]

    single, in_flight = microbatches("--microbatch", "1", "--credits", "1")
    assert in_flight == 1
    assert single > microbatches()[0] > microbatches("--microbatch", "16", "--batching", "greedy")[0]
    assert microbatches("--preset", "vllm")[1] == 3
    assert microbatches("--preset", "vllm", "--credits", "2")[1] == 2


def test_a_damaged_plan(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(plan).write_bytes(PLAN.canonical()[:-9])
    assert stageline(["run", plan, "--workload", SPEC]) == 2
    assert "plan.json" in capsys.readouterr().err


def test_without_a_prefix_cache_the_digest_is_that_of_before(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Pinned when there was no prefix cache yet; since then only rule 7 has split `upstream`."""
    assert stageline(["run", plan, "--workload", SPEC, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["digest"] == "b2eb03f7b48bc65a18e8013da68340b5e75f506e91e895db8ce0917983a6adef"
    assert summary["prefix_cache"] is None


CHATS = "".join(
    json.dumps({"arrival_ns": 50_000 * i, "prompt_tokens": 40, "output_tokens": 2, "hash_ids": [i % 2, 7]}) + "\n"
    for i in range(20)
)


def test_prefix_cache(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two chats, each of whose later prompts finds the first block of 16 and, of 40 tokens, the second one too."""
    trace, out = tmp_path / "chats.jsonl", tmp_path / "run"
    trace.write_text(CHATS)
    assert stageline(["run", plan, "--workload", str(trace), "--prefix-cache", "-o", str(out)]) == 0
    assert "prefix cache" in capsys.readouterr().out
    cached = [json.loads(line)["cached_tokens"] for line in (out / "requests.jsonl").read_text().splitlines()]
    assert cached == [0, 0] + [32] * 18
    figures = json.loads((out / "summary.json").read_text())["prefix_cache"]
    assert figures["block_hit_ratio"] == 0.9
    assert figures["token_hit_ratio"] == 18 * 32 / 800
    assert figures["evictions"] == 0
    assert figures["saved_prefill_s"] == 18 * 3 * (1000 + 320) / 1e9  # three visits of an affine cost each
    assert [r["block_hit_ratio"] for r in figures["replicas"]] == [0.9]
    assert stageline(["report", str(out)]) == 0
    assert "90.0% of blocks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "reason"),
    [(["--balance", "prefix"], "--balance prefix needs"), (["--snapshot-tokens", "16"], "--snapshot-tokens needs")],
)
def test_flags_of_the_prefix_cache_need_it(
    plan: str, capsys: pytest.CaptureFixture[str], flags: list[str], reason: str
) -> None:
    assert stageline(["run", plan, "--workload", SPEC, *flags]) == 2
    assert reason in capsys.readouterr().err
