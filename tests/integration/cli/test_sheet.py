"""`stageline report --sheet`: plan, service, room, cost, what binds and what was tried, on one sheet."""

import re
from pathlib import Path

import pytest

from stageline.cli.main import invoke as stageline
from stageline.report.rundir import read_summary

LOAD = ("--workload", "poisson:rate=20,requests=60,input=128,output=16")


def text_of(page: Path) -> str:
    """The words of a page, without style and tags."""
    body = page.read_text().partition("<body>")[2]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the plan of two replicas of two stages."""
    monkeypatch.chdir(tmp_path)
    made = ["plan", "llama-3.1-8b", "h100-sxm", "--devices", "2", "--replicas", "2", "--context", "4096"]
    assert stageline([*made, "-o", "plan.json"]) == 0
    return tmp_path


def test_the_sheet_says_what_was_planned_served_paid_and_tried(small: Path) -> None:
    run = ["run", "plan.json", *LOAD, "--slo", "ttft=1s,tpot=2ms", "--price", "2.5", "-o", "a"]
    assert stageline(run) == 3  # the objective is missed
    assert stageline(["report", "a", "--sheet", "--no-html", "--no-chart"]) == 0
    said = text_of(small / "a" / "sheet.html")
    for words in (
        "4 x h100-sxm, 2 replicas of 2", "2 pipeline stages", "weights bf16, KV bf16", "contexts of 4,096 tokens",
        "Objective missed", "of it left at p99", "p99 is ", "one replica lost", "2.5 per device and hour",
        "per hour 10", "stageline tune a",
    ):  # fmt: skip
        assert words in said, words
    summary = read_summary(small / "a")
    assert summary.digest is not None and summary.digest in said
    assert "nan" not in said and "None" not in said and "e+" not in said


def test_a_workload_breaks_between_its_parts_and_no_number_breaks(small: Path) -> None:
    assert stageline(["run", "plan.json", *LOAD, "-o", "d"]) == 0
    assert stageline(["report", "d", "--sheet", "--no-html", "--no-chart"]) == 0
    page = (small / "d" / "sheet.html").read_text()
    assert "poisson:rate=20,<wbr>requests=60,<wbr>input=128,<wbr>output=16" in page
    assert "contexts of 4,096 tokens" in page


def test_what_is_not_known_is_said(small: Path) -> None:
    assert stageline(["run", "plan.json", *LOAD, "-o", "b"]) == 0
    assert stageline(["report", "b", "--sheet", "--no-html", "--no-chart"]) == 0
    said = text_of(small / "b" / "sheet.html")
    assert "No objective was given" in said and "none was given: make the run with --price" in said


def test_what_was_tried_replaces_the_hint(small: Path) -> None:
    assert stageline(["run", "plan.json", *LOAD, "-o", "c"]) == 0
    assert stageline(["tune", "c", "--budget", "2", "--jobs", "1"]) == 0
    assert stageline(["report", "c", "--sheet", "--no-html", "--no-chart"]) == 0
    said = text_of(small / "c" / "sheet.html")
    assert "tried for throughput" in said and "to try what can move it" not in said


def test_text_of_users_is_escaped(small: Path) -> None:
    plan = small / "plan.json"
    plan.write_text(plan.read_text().replace('"model":"llama-3.1-8b"', '"model":"<script>x</script>"'))
    assert stageline(["run", "plan.json", *LOAD, "-o", "d"]) == 0
    assert stageline(["report", "d", "--sheet", "--no-html", "--no-chart"]) == 0
    assert "<script>x" not in (small / "d" / "sheet.html").read_text()
