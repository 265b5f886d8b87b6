"""The known run as text: tables and lines say what stages.json says, and name the causes that the run was made for."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from stageline.engine.causes import CAUSES, TABLE
from stageline.report.advice import advise
from stageline.report.rundir import read_run_pools, read_stages, read_summary
from stageline.report.text_report import run_report
from tests.known import SLOW, TIGHT, known_requests, write_run
from tests.reference.plans import pipeline

NAMES = {cause.heading: cause.name for cause in TABLE if cause.heading}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run."""
    path = tmp_path_factory.mktemp("known")
    write_run(path)
    return path


def text_of(directory: Path) -> str:
    """What `stageline report` prints."""
    out = StringIO()
    Console(file=out, width=80, color_system=None).print(run_report(read_summary(directory), read_stages(directory)))
    return out.getvalue()


def rows_of(text: str) -> Iterator[tuple[range, dict[str, str]]]:
    """The stages' table: which stages a row is about, and its cells by heading."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("stage busy%"))
    headings = lines[at].replace("kv top%", "top%").split()
    for line in lines[at + 2 :]:
        if not line[:1].isdigit():
            return
        cells = line.split()
        first, _, last = cells[0].partition("-")
        yield range(int(first), int(last or first) + 1), dict(zip(headings[1:], cells[1:], strict=True))


def percent(cell: str) -> float:
    """A cell's share; `<0.1` counts as half of that."""
    return 0.0 if cell == "-" else 0.05 if cell == "<0.1" else float(cell)


def test_the_table_says_what_stages_json_says(directory: Path) -> None:
    stages, seen = read_stages(directory), list[int]()
    for group, cells in rows_of(text_of(directory)):
        seen += group
        for index in group:
            record = stages[index]
            shown = {NAMES.get(name, name): percent(cell) for name, cell in cells.items()}
            assert shown.pop("busy%") == pytest.approx(100 * record.busy_ns / record.window_ns, abs=0.06)
            assert shown.pop("top%") == pytest.approx(100 * record.kv_peak_bytes / record.kv_budget_bytes, abs=0.06)
            for cause in CAUSES:
                share = 100 * record.idle_ns.get(cause, 0) / record.window_ns
                assert shown.pop(cause, 0.0) == pytest.approx(share, abs=0.06), (index, cause)
            assert not shown
    assert seen == list(range(len(stages)))


def test_the_slow_stage_and_the_tight_one_stand_out(directory: Path) -> None:
    text = text_of(directory)
    assert f"busiest stage {SLOW}, KV binds at stage {TIGHT}" in " ".join(text.split())
    assert f"{len(known_requests())} of {len(known_requests())} finished" in text
    rows = {index: cells for group, cells in rows_of(text) for index in group}
    assert max(rows, key=lambda i: percent(rows[i]["busy%"])) == SLOW
    assert [i for i in rows if rows[i]["top%"] == "100.0"] == [TIGHT]
    assert percent(rows[len(rows) - 1]["fill"]) > percent(rows[0]["fill"])
    assert percent(rows[0]["drain"]) > percent(rows[len(rows) - 1]["drain"])
    assert all(percent(cells["empty"]) > 0 for cells in rows.values())


def test_the_lines_name_what_binds(directory: Path) -> None:
    lines = [line.seen for line in advise(read_run_pools(directory), read_summary(directory), read_stages(directory))]
    assert any(f"(stage {TIGHT} binds)" in line for line in lines)
    assert any(f"stage {SLOW} is busy" in line for line in lines)


def test_a_pipeline_that_is_not_full_gets_one_line(tmp_path: Path) -> None:
    """Equal stages and one request: the gaps behind the first stage are of the same making."""
    write_run(tmp_path, pipeline([1_000] * 8, latency_ns=1, credits_=8), known_requests()[:1])
    (line,) = advise(read_run_pools(tmp_path), read_summary(tmp_path), read_stages(tmp_path))
    stages = read_stages(tmp_path)
    most = max(s.idle_ns["starved"] / s.window_ns for s in stages)
    assert line.seen.startswith("Too few microbatches are in flight")
    assert f"{most:.0%} on the most starved stage" in line.seen
    assert "--batched-tokens" not in line.moved_by
