"""Figures on both clocks from hand-made samples, the timeline, and the files."""

import csv
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageline.engine.types import Request
from stageline.errors import UsageError
from stageline.load.recorder import REQUESTS_FILE, LoadRecorder
from stageline.load.remarks import slowness
from stageline.load.reply import CallReply, Emulated
from stageline.load.sample import Sample
from stageline.load.schedule import Due
from stageline.load.summary import clock_figures, slo_result
from stageline.load.svg import ChartLine, line_chart, round_up
from stageline.load.tally import Tally
from stageline.load.time_map import TimeMap
from stageline.load.timeline import MAX_SLICES, LoadTimeline
from stageline.report.distributions import Histogram
from stageline.report.slo import parse_slo

MS = 1_000_000


def sample(**changed: object) -> Sample:
    """Due at 10 ms, sent at 12, first token at 30, last of 5 at 50."""
    plain = Sample(
        index=0, turn=0, step=0, warmup=False, intended_ns=10 * MS, sent_ns=12 * MS, first_ns=30 * MS,
        last_ns=50 * MS, end_ns=51 * MS, asked_prompt_tokens=7, prompt_tokens=7, asked_output_tokens=5,
        output_tokens=5, chunks=5, outcome="finished", reason="",
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changed)


STATED = {"server_queue_ns": 1 * MS, "server_ttft_ns": 4 * MS, "server_e2e_ns": 12 * MS}


def due() -> Due:
    """A request that is no warm-up."""
    request = Request(index=0, arrival_ns=0, prompt_tokens=7, output_tokens=5, max_output_tokens=5)
    return Due(request, 0, 0, warmup=False)


def reply_with(**emulated: object) -> CallReply:
    """A reply that states emulated times."""
    reply = CallReply(gaps=Histogram())
    reply.emulated = Emulated(1 * MS, 4 * MS, 12 * MS, **emulated)
    return reply


def test_wall_times_count_from_the_intended_start() -> None:
    times = sample().wall_times()
    assert times is not None
    assert (times.queue_ns, times.ttft_ns, times.tpot_ns, times.e2e_ns) == (2 * MS, 20 * MS, 5 * MS, 40 * MS)


def test_emulated_times_are_the_servers_plus_the_clients_lag() -> None:
    times = sample(**STATED).emulated_times(Fraction(2))
    assert times is not None
    assert (times.queue_ns, times.ttft_ns, times.tpot_ns, times.e2e_ns) == (2 * MS, 5 * MS, 2 * MS, 13 * MS)


def test_without_server_times_emulated_times_are_wall_times_over_the_dilation() -> None:
    times = sample().emulated_times(Fraction(2))
    assert times is not None
    assert (times.ttft_ns, times.tpot_ns, times.e2e_ns) == (10 * MS, 2_500_000, 20 * MS)


def test_one_token_has_no_tpot_and_a_failure_no_times() -> None:
    one = sample(output_tokens=1, chunks=1, last_ns=30 * MS).wall_times()
    assert one is not None and one.tpot_ns is None
    assert sample(outcome="failed", reason="cut").wall_times() is None
    assert sample(first_ns=None, last_ns=None, chunks=0).wall_times() is None


def test_both_clocks_add_up() -> None:
    tally, gaps = Tally(parse_slo("ttft=5ms,attainment=0.5"), Fraction(2), slo_on_wall=False), Histogram()
    gaps.add(6 * MS)
    tally.add(sample(**STATED))
    tally.add(sample(**(STATED | {"server_ttft_ns": 4 * MS + 1})))
    tally.add(
        sample(outcome="rejected", reason="HTTP 429", first_ns=None, last_ns=None, output_tokens=0, end_ns=210 * MS)
    )
    wall, emulated = clock_figures(tally, gaps)
    assert emulated is not None
    assert (wall.duration_s, emulated.duration_s) == (0.2, 0.1)  # 10 to 210 ms
    assert (wall.requests_per_s, emulated.requests_per_s) == (10, 20)
    assert (wall.output_tokens_per_s, emulated.output_tokens_per_s) == (50, 100)
    assert wall.latencies.itl_s.max == 0.006
    assert emulated.latencies.itl_s.max == 0.003
    assert wall.latencies.ttft_s.max == 0.020
    assert emulated.latencies.ttft_s.p50 == 0.005
    slo = slo_result(parse_slo("ttft=5ms,attainment=0.5"), tally, emulated.duration_s)
    assert (slo.good, slo.met, slo.goodput_requests_per_s) == (
        1,
        False,
        10,
    )  # 1 of 3: the rejected call counts as missed
    assert tally.reasons == {"HTTP 429": 1}


def test_gaps_that_the_server_states_are_the_emulated_itl() -> None:
    with recorder() as keeper:
        keeper.gaps(due()).add(900 * MS)  # the host stood still
        keeper.record(sample(**STATED), reply_with(gaps_ns=[2 * MS, 2 * MS, 5 * MS]))
        keeper.finish()
        figures = clock_figures(
            Tally(None, Fraction(2), slo_on_wall=False), keeper.total.gaps, keeper.total.emulated_gaps
        )
    wall, emulated = figures
    assert emulated is not None
    assert wall.latencies.itl_s.max == pytest.approx(0.9, rel=0.001)
    assert emulated.latencies.itl_s.p50 == pytest.approx(0.002, rel=0.001)
    assert emulated.latencies.itl_s.max == 0.005


def test_retries_are_part_of_the_emulated_latency() -> None:
    times = sample(**STATED, retries=1, retry_wait_ns=1_000 * MS).emulated_times(Fraction(2))
    assert times is not None
    assert (times.ttft_ns, times.e2e_ns) == (505 * MS, 513 * MS)


def test_emulated_rates_are_of_the_servers_clock_which_stands_still_while_it_slips() -> None:
    tally = Tally(None, Fraction(1), slo_on_wall=False)
    tally.add(sample(**STATED, server_arrival_ns=3 * MS))
    later = {"intended_ns": 5_000 * MS, "sent_ns": 5_000 * MS, "end_ns": 5_020 * MS}  # the clock stood still for 4.9 s
    tally.add(sample(**STATED, server_arrival_ns=91 * MS, **later))
    wall, emulated = clock_figures(tally, Histogram())
    assert emulated is not None
    assert (wall.duration_s, emulated.duration_s) == (pytest.approx(5.01), pytest.approx(0.1))
    assert emulated.output_tokens_per_s == pytest.approx(100)


def test_another_session_has_another_clock_and_wall_time_counts() -> None:
    tally = Tally(None, Fraction(2), slo_on_wall=False)
    tally.add(sample(**STATED, server_arrival_ns=9_000 * MS))
    tally.add(sample(**STATED, server_arrival_ns=MS, sent_ns=5_000 * MS, end_ns=5_010 * MS))
    _, emulated = clock_figures(tally, Histogram())
    assert emulated is not None
    assert emulated.duration_s == pytest.approx(2.5)


def test_the_slo_is_judged_in_wall_time_on_request() -> None:
    objective = parse_slo("ttft=5ms")
    for on_wall, good in ((True, 0), (False, 1)):
        tally = Tally(objective, Fraction(2), slo_on_wall=on_wall)
        tally.add(sample(**STATED))
        assert tally.good == good


def test_odd_lengths_are_counted() -> None:
    tally = Tally(None, None, slo_on_wall=True)
    tally.add(sample(prompt_tokens=9))
    tally.add(sample(output_tokens=4))
    tally.add(sample(prompt_tokens=None))
    assert (tally.other_prompts, tally.other_outputs, tally.prompt_tokens) == (1, 1, 9 + 7 + 7)


@given(st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 10**12)), min_size=1, max_size=60))
def test_a_timeline_keeps_its_totals_and_stays_small(times: list[tuple[int, int]]) -> None:
    timeline = LoadTimeline()
    for due_ns, span_ns in times:
        timeline.add(
            sample(intended_ns=due_ns, first_ns=due_ns + span_ns, last_ns=due_ns + span_ns, end_ns=due_ns + span_ns)
        )
    assert len(timeline.slices) <= MAX_SLICES
    assert sum(s.due for s in timeline.slices) == sum(s.finished for s in timeline.slices) == len(times)
    assert sum(s.ttft_sum_ns for s in timeline.slices) == sum(span for _, span in times)
    latest = max(due + span for due, span in times)
    assert timeline.slices[latest // timeline.slice_ns].finished > 0


@given(st.fractions(min_value=Fraction(1, 1000), max_value=1000), st.integers(0, 1 << 50))
def test_a_time_survives_the_round_trip_through_wall_time(factor: Fraction, time_ns: int) -> None:
    time_map = TimeMap(factor, 123)
    assert abs(time_map.workload_ns(time_map.wall_ns(time_ns)) - time_ns) <= max(1, 1 / factor)
    assert time_map.workload_ns(0) == 0


def recorder(directory: Path | None = None) -> LoadRecorder:
    return LoadRecorder(2, slo=None, dilation=None, slo_on_wall=True, directory=directory)


def test_requests_csv_has_every_call(tmp_path: Path) -> None:
    with recorder(tmp_path / "out") as keeper:
        keeper.record(sample(**STATED), CallReply(gaps=Histogram()))
        keeper.record(
            sample(index=1, warmup=True, first_ns=None, outcome="failed", reason="cut"), CallReply(gaps=Histogram())
        )
    with (tmp_path / "out" / REQUESTS_FILE).open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["index"], r["warmup"], r["first_ns"], r["reason"]) for r in rows] == [
        ("0", "0", str(30 * MS), ""),
        ("1", "1", "", "cut"),
    ]
    assert (rows[0]["server_ttft_ns"], rows[1]["server_ttft_ns"]) == (str(4 * MS), "")


def test_a_directory_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="another directory"):
        recorder(tmp_path / "file")


def test_a_chart_is_well_formed_and_inside_its_frame() -> None:
    lines = [ChartLine("a < b", "#000", [(0, 1.0), (1, None), (2, 3.0), (3, 2.5)]), ChartLine("none", "#111", [])]
    figure = ElementTree.fromstring(line_chart(lines, x_label="s & s", y_label="y"))
    (polyline,) = figure.iter("polyline")
    (dot,) = figure.iter("circle")
    points = [tuple(map(float, p.split(","))) for p in polyline.attrib["points"].split()]
    points.append((float(dot.attrib["cx"]), float(dot.attrib["cy"])))
    assert all(64 <= x <= 708 and 12 <= y <= 184 for x, y in points)
    assert min(y for _, y in points) == pytest.approx(12 + 172 * (1 - 3 / 5), abs=0.06)  # the top of the axis is 5


@pytest.mark.parametrize(
    ("value", "top"),
    [(1, 1), (3, 5), (24, 25), (26, 50), (51, 100), (0.003, 0.005), (0.1, 0.1), (0.12, 0.2), (999, 1000)],
)
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    assert round_up(value) == pytest.approx(top)


def test_a_host_that_does_not_keep_up_gets_a_remark() -> None:
    (note,) = slowness(6.0, 1.0, Fraction(2))
    assert note.startswith("replies took 3.0 x the wall time")
    assert slowness(2.3, 1.0, Fraction(2)) == []
    assert slowness(None, None, Fraction(2)) == []
