"""Tables fit 80 columns, group what is alike and never hide a stage that differs."""

import io
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from stageline.engine.causes import CAUSES, TABLE
from stageline.engine.types import StageRecord
from stageline.report.grouping import group_stages
from stageline.report.rundir import read_stages, read_summary
from stageline.report.text_report import run_report, stage_table


def stage(index: int, busy: int, replica: int = 0, **idle: int) -> StageRecord:
    rest = 1000 - busy - sum(idle.values())
    return StageRecord(
        replica=replica, stage=index, window_ns=1000, busy_ns=busy,
        idle_ns={**dict.fromkeys(CAUSES, 0), "upstream": rest, **idle}, kv_peak_bytes=index, kv_budget_bytes=100,
        microbatches=1, visits=1,
    )  # fmt: skip


def shown(renderable: object, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, highlight=False).print(renderable)
    return out.getvalue()


def test_like_neighbours_share_a_row() -> None:
    groups = group_stages([stage(i, 300) for i in range(5)] + [stage(5, 900)] + [stage(6, 300)], 32)
    assert [g.label for g in groups] == ["0-4", "5", "6"]
    assert [g.busy_ratio for g in groups] == pytest.approx([0.3, 0.9, 0.3])
    assert [g.kv_peak_ratio for g in groups] == pytest.approx([0.04, 0.05, 0.06])  # the largest of the group


def test_more_rows_than_wanted_join_the_most_alike() -> None:
    busy = [100 + 3 * i for i in range(59)]
    busy[30] = 950
    groups = group_stages([stage(i, b) for i, b in enumerate(busy)], 8)
    assert len(groups) == 8
    assert "30" in [g.label for g in groups]
    bounds = [[int(n) for n in g.label.split("-")] for g in groups]
    assert bounds[0][0] == 0
    assert bounds[-1][-1] == 58
    assert all(b[0] == a[-1] + 1 for a, b in pairwise(bounds))


def test_replicas_are_never_mixed() -> None:
    groups = group_stages([stage(i, 300, replica=r) for r in (0, 1, 2) for i in range(4)], 2)
    assert [g.label for g in groups] == ["0/0-3", "1/0-3", "2/0-3"]


@pytest.mark.parametrize("stages", [8, 59])
def test_every_cause_fits_80_columns(stages: int) -> None:
    idle = dict.fromkeys(CAUSES, 40)
    text = shown(stage_table([stage(i, (37 * i) % 500, **idle) for i in range(stages)]))
    lines = text.splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 80
    assert [c.name for c in TABLE if (c.heading or c.name)[:4] not in lines[0].split()] == []
    assert "…" not in text


def test_causes_that_never_occurred_have_no_column() -> None:
    text = shown(stage_table([stage(0, 400, hop=1), stage(1, 1000)]))
    assert "fault" not in text
    assert "starved" not in text
    assert "0.1" in text
    assert "59.9" in text


def test_the_whole_report_fits(run_directory: Path) -> None:
    text = shown(run_report(read_summary(run_directory), read_stages(run_directory)))
    assert max(map(len, text.splitlines())) <= 80
    for word in ("cluster", "served", "TTFT", "p99", "stage", "digest", "SLO met"):
        assert word in text
