"""Measured requests are read with the names and units of serving tools; errors name line and column."""

import json

import pytest

from stageline.errors import BadInput
from stageline.workload.timings import MeasuredTimes, read_timings


def jsonl(*rows: dict[str, object]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def moments(i: int) -> dict[str, object]:
    """A row like vLLM's own statistics: a monotonic clock beside the wall clock."""
    at = 100.0 + i
    return {
        "request_id": f"r{i}", "input_toks": 10, "output_toks": 5, "arrival_time": 1_777_142_838.5 + i,
        "queued_ts": at, "first_token_ts": at + 0.25, "last_token_ts": at + 1.25,
    }  # fmt: skip


def test_timestamps_on_one_clock_become_durations() -> None:
    found = read_timings(jsonl(*(moments(i) for i in range(8))), "f")
    assert [r.arrival_ns for r in found.requests] == [i * 10**9 for i in range(8)]
    assert found.times[3] == MeasuredTimes(ttft_ns=250_000_000, tpot_ns=250_000_000, e2e_ns=1_250_000_000)
    assert (found.requests[0].prompt_tokens, found.requests[0].output_tokens) == (10, 5)


def test_a_csv_with_spans_in_milliseconds() -> None:
    rows = [f"{i * 1000},100,5,250,{tpot}" for i, tpot in enumerate(["250"] * 8)]
    found = read_timings("arrival_ms,prompt_tokens,output_tokens,ttft_ms,tpot_ms\n" + "\n".join(rows), "f")
    assert found.times[0] == MeasuredTimes(ttft_ns=250_000_000, tpot_ns=250_000_000, e2e_ns=1_250_000_000)
    assert found.requests[7].arrival_ns == 7 * 10**9


def test_a_runs_own_records_lose_no_nanosecond() -> None:
    rows = [
        {"arrival_ns": 10**18 + i, "prompt_tokens": 1, "output_tokens": 3, "first_token_ns": 10**18 + i + 5,
         "last_token_ns": 10**18 + i + 12, "outcome": "finished"}
        for i in range(8)
    ]  # fmt: skip
    found = read_timings(jsonl(*rows), "f")
    assert found.requests[7].arrival_ns == 7
    assert found.times[0] == MeasuredTimes(ttft_ns=5, tpot_ns=4, e2e_ns=12)  # 3.5 to even


def test_requests_are_sorted_and_failed_ones_left_out() -> None:
    rows = [moments(i) for i in reversed(range(9))]
    rows[4] |= {"first_token_ts": None, "last_token_ts": None}
    found = read_timings(jsonl(*rows), "f")
    assert found.left_out == 1
    assert [r.arrival_ns for r in found.requests] == sorted(r.arrival_ns for r in found.requests)
    assert [r.index for r in found.requests] == list(range(8))


def test_a_single_token_has_no_tpot() -> None:
    row = {"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1, "ttft_s": 0.5}
    assert read_timings(jsonl(*[row] * 8), "f").times[0] == MeasuredTimes(500_000_000, None, 500_000_000)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"queued_ts": None, "arrival_time": None}, "no arrival time"),
        ({"queued_ts": "soon"}, "column queued_ts: not a time"),
        ({"queued_ts": -1.0}, "column queued_ts: not a time"),
        ({"first_token_ts": 1.0}, "first_token comes before the arrival"),
        ({"last_token_ts": 100.1}, "the last token comes before the first"),
        ({"last_token_ts": None}, "no last token"),
        ({"input_toks": None}, "no column prompt_tokens"),
        ({"input_toks": "ten"}, "column input_toks: not a count"),
        ({"output_toks": 10**11}, "column output_toks: not a count"),
    ],
)
def test_a_bad_row_is_named_by_line_and_column(change: dict[str, object], reason: str) -> None:
    rows = [moments(0) | change, *(moments(i) for i in range(1, 9))]
    with pytest.raises(BadInput, match=f"f:1.*{reason}"):
        read_timings(jsonl(*rows), "f")


@pytest.mark.parametrize("text", ["", "{not json}", "{}", "a,b\n1,2"])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^f"):
        read_timings(text, "f")


def test_too_few_requests_are_refused() -> None:
    with pytest.raises(BadInput, match="fewer than 8"):
        read_timings(jsonl(*(moments(i) for i in range(7))), "f")
