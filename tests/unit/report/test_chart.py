"""The chart is drawn, names what it shows, is the same each time, and agrees with the records."""

from collections import Counter
from pathlib import Path

import pytest

from stageline.report.chart import draw_chart
from stageline.report.events import Gap, Served, StageEvent
from stageline.report.rundir import read_events, read_stages, read_summary
from stageline.report.timeline import first_microbatches


def test_chart_files(run_directory: Path, tmp_path: Path) -> None:
    summary, stages = read_summary(run_directory), read_stages(run_directory)
    timeline = first_microbatches(read_events(run_directory), summary.visits, 10)
    for name in ("a", "b"):
        draw_chart(summary, stages, timeline, [tmp_path / f"{name}.svg", tmp_path / f"{name}.png"])
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    svg = (tmp_path / "a.svg").read_text()
    for text in (
        "busy",
        "upstream: on the way through earlier stages",
        "stage",
        "share of the run's time (%)",
        "emulated time",
    ):
        assert text in svg
    assert svg == (tmp_path / "b.svg").read_text()


def test_a_chart_without_events(run_directory: Path, tmp_path: Path) -> None:
    draw_chart(read_summary(run_directory), read_stages(run_directory), None, [tmp_path / "a.svg"])
    assert "emulated time" not in (tmp_path / "a.svg").read_text()


def test_events_add_up_to_the_stages(run_directory: Path) -> None:
    """Busy time and every cause before a service; fill and drain lie outside the first and the last one."""
    busy, idle = Counter[int](), dict[int, Counter[str]]()
    for event in read_events(run_directory):
        if isinstance(event, Served):
            busy[event.stage] += event.end_ns - event.start_ns
        elif isinstance(event, Gap):
            idle.setdefault(event.stage, Counter()).update(event.idle_ns)
    for stage in read_stages(run_directory):
        assert busy[stage.stage] == stage.busy_ns
        causes = {c: ns for c, ns in stage.idle_ns.items() if ns and c not in ("fill", "drain")}
        assert {c: ns for c, ns in idle[stage.stage].items() if ns} == causes


def served(stage: int, sequence: int, start: int, end: int) -> Served:
    return Served(replica=0, stage=stage, visit=stage, number=sequence, arrival_ns=start, start_ns=start, end_ns=end)


def test_timeline_is_cut_at_the_end_of_the_last_microbatch() -> None:
    events: list[StageEvent] = [
        served(0, 0, 10, 20),
        served(1, 0, 22, 30),
        served(0, 1, 20, 25),
        Gap(replica=0, stage=0, start_ns=25, idle_ns={"upstream": 5, "starved": 10}),
        served(0, 2, 40, 60),
        served(1, 1, 31, 38),
    ]
    timeline = first_microbatches(events, 2, 2)
    assert timeline is not None
    assert (timeline.start_ns, timeline.end_ns) == (10, 38)
    assert [(s.stage, s.number) for s in timeline.services] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert set(timeline.gaps) == {(1, "fill", 10, 12), (0, "starved", 25, 10), (0, "upstream", 35, 3)}


def test_timeline_reads_no_further_than_needed(run_directory: Path) -> None:
    def endless() -> object:
        for sequence in range(10**6):
            if sequence > 1000:
                pytest.fail("read on")
            for stage in (0, 1):
                yield served(stage, sequence, sequence * 10 + stage, sequence * 10 + stage + 1)

    timeline = first_microbatches(endless(), 2, 5)  # type: ignore[arg-type]
    assert timeline is not None
    assert timeline.end_ns == 42
    assert first_microbatches([], 2, 5) is None
