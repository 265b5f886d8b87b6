"""Comparisons: what changed, by how much, and whether that is good."""

from itertools import groupby
from pathlib import Path

import pytest

from stageline.engine.settings import Scheduling
from stageline.errors import BadInput
from stageline.report.compare import changed_settings, command_flags, compare_runs, read_runs
from stageline.report.compare_table import change_text, short_names
from stageline.report.page.compare import comparison_page
from tests.known import write_run


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    """The known run with six credits, and with one."""
    write_run(tmp_path / "six")
    write_run(tmp_path / "one", scheduling=Scheduling(credits=1))
    return [tmp_path / "six", tmp_path / "one"]


def test_what_changed_and_what_it_did(directories: list[Path]) -> None:
    runs = read_runs(directories)
    found = compare_runs(runs)
    assert found.changes == [("credits", ["6", "1"])]
    rows = {row.name: row for row in found.rows}
    for name, verdict in (("E2E p50", "worse"), ("bubbles", ""), ("busy", ""), ("finished", "")):
        assert rows[name].verdict(1) == verdict, name
    assert rows["whole run tokens/s"].values == [run.summary.output_tokens_per_s for run in runs]
    assert change_text(rows["finished"], 1) == "="
    assert rows["finished"].verdict(0) == ""


def test_figures_of_one_kind_stand_together(directories: list[Path]) -> None:
    groups = [row.group for row in compare_runs(read_runs(directories)).rows]
    assert [group for group, _ in groupby(groups)] == list(dict.fromkeys(groups))


def test_shares_come_from_stages_json(directories: list[Path]) -> None:
    runs = read_runs(directories)
    rows = {row.name: row for row in compare_runs(runs).rows}
    for i, run in enumerate(runs):
        window_ns = sum(s.window_ns for s in run.stages)
        assert rows["kv_blocked"].values[i] == sum(s.idle_ns["kv_blocked"] for s in run.stages) / window_ns


def test_a_run_against_itself_changes_nothing(directories: list[Path]) -> None:
    runs = read_runs([directories[0], directories[0]])
    assert changed_settings(runs) == []
    assert {row.verdict(1) for row in compare_runs(runs).rows} == {""}


def test_flags_of_a_command() -> None:
    command = "stageline run plan.json --workload 'poisson:rate=4,input=10' --credits=8 --paranoid -o out --seed 3"
    wanted = {"--workload": "poisson:rate=4,input=10", "--credits": "8", "--paranoid": "yes", "--seed": "3"}
    assert command_flags(command) == wanted


def test_names_are_as_short_as_they_can_be() -> None:
    assert short_names(["runs/a", "runs/b/"]) == ["a", "b"]
    assert short_names(["x/a", "y/a"]) == ["x/a", "y/a"]


def test_an_incomplete_run_is_refused(directories: list[Path]) -> None:
    path = directories[1] / "summary.json"
    path.write_text(path.read_text().replace('"complete": true', '"complete": false'))
    with pytest.raises(BadInput, match="broke off"):
        read_runs(directories)


def test_the_page_escapes_what_users_wrote(directories: list[Path]) -> None:
    path = directories[1] / "summary.json"
    path.write_text(path.read_text().replace('"workload": "known"', '"workload": "<script>"'))
    runs = read_runs(directories)
    page = comparison_page(compare_runs(runs), runs)
    assert "&lt;script&gt;" in page
    assert page.count("<script>") == 1
