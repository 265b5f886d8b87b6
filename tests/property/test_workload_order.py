"""Rows out of order: the window merges them stably, or says that it can't."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stageline.errors import BadInput
from stageline.units import rounded_ratio
from stageline.workload import RowCounts, open_workload
from stageline.workload.order import in_order, scaled_ns, sorted_fully
from stageline.workload.rows import TraceRow
from tests.draining import drain, take

TIMES = st.lists(st.integers(0, 50), max_size=60)


def rows(times: list[int]) -> list[TraceRow]:
    return [TraceRow(t, i + 1, 1) for i, t in enumerate(times)]


@given(TIMES, st.integers(0, 70))
def test_window_equals_stable_sort_or_is_an_error(times: list[int], window: int) -> None:
    expected = sorted((t, i) for i, t in enumerate(times))
    late = any(
        earlier > t
        for i, t in enumerate(times)
        for earlier in sorted(times[:i])[: max(0, i - window)]  # what must have left the window before row i
    )
    try:
        got = [(t, i) for t, i, _ in in_order(rows(times), "x", RowCounts(), window)]
    except BadInput as error:
        assert late
        assert "--sort" in str(error)
    else:
        assert not late
        assert got == expected


@given(TIMES)
def test_full_sort_is_stable(times: list[int]) -> None:
    counts = RowCounts()
    got = [(t, i) for t, i, _ in sorted_fully(rows(times), counts)]
    assert got == sorted((t, i) for i, t in enumerate(times))
    assert counts.reordered == sum(t < max(times[:i], default=0) for i, t in enumerate(times))


@given(st.integers(0, 10**15), st.fractions(min_value="1/1000", max_value=1000))
def test_scaling_keeps_order_and_rounds_once(time_ns: int, scale: Fraction) -> None:
    assert scaled_ns(time_ns, scale) == round(time_ns / scale)
    assert scaled_ns(time_ns, scale) <= scaled_ns(time_ns + 1, scale)
    assert rounded_ratio(time_ns, 1) == time_ns


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(20)))
def test_files_in_any_order_replay_alike(tmp_path: Path, order: list[int]) -> None:
    path = tmp_path / "t.csv"
    header = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
    path.write_text(header + "".join(f"{t}.5,{t + 1},1\n" for t in order))
    got = drain(open_workload(str(path)))
    assert [r.arrival_ns for r in got] == [t * 10**9 for t in range(20)]
    assert [r.prompt_tokens for r in got] == list(range(1, 21))
    assert [r.index for r in got] == [order.index(t) for t in range(20)]


def test_a_row_beyond_the_window_names_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
    text += "".join(f"{t},1,1\n" for t in range(1, 2000)) + "0,7,7\n"
    path.write_text(text)
    workload = open_workload(str(path))
    with pytest.raises(BadInput, match=r"request 1999 is .* --sort"):
        drain(workload)
    first = take(open_workload(str(path), sort=True))
    assert (first.index, first.arrival_ns, first.prompt_tokens) == (1999, 0, 7)
