"""docs/tutorial.md, typed as it stands: every command runs, and the figures in the text are those that come out."""

import re
import shlex
from pathlib import Path

import pytest

from stageline.cli.main import invoke as stageline
from stageline.report.rundir import read_summary
from stageline.report.tuned import read_tune

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
EXIT_CODES = {"tomorrow": 3}  # of the run in that directory; all others end with 0
DOCKER = ("docker compose up -d --wait", "docker compose down")  # tests/containers run the compose file


def commands(heading: str) -> list[str]:
    """The lines of the code blocks under a heading."""
    part = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [
        line for block in re.findall(r"^```\n(.*?)^```", part, re.MULTILINE | re.DOTALL) for line in block.splitlines()
    ]


def typed(line: str) -> list[str]:
    """The words of a line; where it names the compose cluster, local servers stand in for the containers."""
    words = shlex.split(line)[1:]
    if "--cluster" in words:
        at = words.index("--cluster")
        assert words[at + 1] == "localhost:50051"  # as the compose file publishes it
        words[at : at + 2] = ["--engine", "cluster"]
    return words


def walk(heading: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    for line in commands(heading):
        if line in DOCKER:
            continue
        words = typed(line)
        assert stageline(words) == EXIT_CODES.get(words[-1], 0), line


def test_the_bubble_is_found_fixed_and_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    walk("Find the bubble, fix it, see it gone", tmp_path, monkeypatch)
    before, after = read_summary(tmp_path / "natural"), read_summary(tmp_path / "balanced")
    assert f"{before.output_tokens_per_s:,.0f} output tokens/s" in TEXT
    assert before.ttft_s.p50 is not None and before.tpot_s.p50 is not None and after.ttft_s.p50 and after.tpot_s.p50
    ttft = f"TTFT {before.ttft_s.p50:.2f} s → {1000 * after.ttft_s.p50:.0f} ms"
    tpot = f"TPOT {1000 * before.tpot_s.p50:.0f} → {1000 * after.tpot_s.p50:.0f} ms"
    assert f"{ttft}, {tpot}" in TEXT.replace("\n", " ")
    assert f"from {100 * before.bubble_ratio:.0f} to {100 * after.bubble_ratio:.0f} %" in TEXT
    tried = read_tune(tmp_path / "natural", before.digest)
    assert tried is not None
    gains = {m.flags: m.gain for m in tried.measured}
    assert f"+{gains['--batching balanced']:.0%}".replace("%", " %") in TEXT
    assert tried.best is not None and tried.best.flags == "--batched-tokens 256"
    assert read_summary(tmp_path / "on-the-cluster").digest == after.digest
    page = (tmp_path / "natural" / "report.html").read_text()
    assert '"groups":1,' in page  # one group over time


def test_a_vllm_command_becomes_a_capacity_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    walk("From your vLLM command to a capacity plan", tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    for figure in ("450,304 tokens", "54.97"):
        assert figure in TEXT and figure in printed
    today, tomorrow = read_summary(tmp_path / "today"), read_summary(tmp_path / "tomorrow")
    assert today.measured and today.measured.stationary and today.slo and today.slo.met
    assert today.measured.served_requests_per_s == pytest.approx(today.measured.offered_requests_per_s, rel=0.03)
    assert today.cost is not None and f"cost {today.cost.per_million_output_tokens:.2f}" in TEXT
    assert tomorrow.measured is not None and tomorrow.measured.stationary is False
    assert "answer: dp2" in printed and "vllm serve" in printed


def test_nothing_else_is_typed() -> None:
    """A code block that this module does not run would be a promise that nobody keeps."""
    headings = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    run = [line for heading in headings for line in commands(heading)]
    assert len(run) == len([line for line in TEXT.splitlines() if line.startswith(("stageline ", "docker "))])
    assert {line for line in run if not line.startswith("stageline ")} == {*DOCKER}
