"""Sorts rows by arrival time, and does the arithmetic of arrival times."""

import heapq
from collections.abc import Iterable, Iterator
from fractions import Fraction

from stageline.errors import BadInput
from stageline.units import MAX_TIME_NS, NS_PER_S, rounded_ratio
from stageline.workload.rows import RowCounts, TraceRow

REORDER_ROWS = 1024  # rows buffered: how many rows late a row may come

Numbered = tuple[int, int, TraceRow]  # time_ns, index in file order, row: compares by time, then by file order


def in_order(rows: Iterable[TraceRow], place: str, counts: RowCounts, window: int = REORDER_ROWS) -> Iterator[Numbered]:
    """Rows by time, equal ones in file order, sorted through a window. Raises BadInput for a row that is too late."""
    held: list[Numbered] = []
    latest_ns = emitted_ns = -1
    for index, row in enumerate(rows):
        if row.time_ns < emitted_ns:
            reason = (
                f"request {index} is {emitted_ns - row.time_ns} ns earlier than one more than {window} rows before it"
            )
            raise BadInput(place, None, reason, "sort the rows while reading with --sort (reads the whole file first)")
        counts.reordered += row.time_ns < latest_ns
        latest_ns = max(latest_ns, row.time_ns)
        if len(held) < window:
            heapq.heappush(held, (row.time_ns, index, row))
            continue
        first = heapq.heappushpop(held, (row.time_ns, index, row))
        emitted_ns = first[0]
        yield first
    while held:
        yield heapq.heappop(held)


def sorted_fully(rows: Iterable[TraceRow], counts: RowCounts) -> Iterator[Numbered]:
    """The same order without a window; holds all rows in memory."""
    latest_ns = -1
    numbered: list[Numbered] = []
    for index, row in enumerate(rows):
        counts.reordered += row.time_ns < latest_ns
        latest_ns = max(latest_ns, row.time_ns)
        numbered.append((row.time_ns, index, row))
    numbered.sort(key=lambda item: item[:2])
    return iter(numbered)


def scaled_ns(time_ns: int, rate_scale: Fraction) -> int:
    """time_ns / rate_scale, rounded half-even, in integers."""
    if rate_scale == 1:
        return time_ns
    return rounded_ratio(time_ns * rate_scale.denominator, rate_scale.numerator)


def checked_ns(time_ns: int, place: str, index: int) -> int:
    """Returns an arrival time that the engine can represent. Raises BadInput for a later one."""
    if time_ns >= MAX_TIME_NS:
        years = MAX_TIME_NS // (365 * 86_400 * NS_PER_S)
        reason = f"request {index} arrives more than {years} years after the start"
        raise BadInput(place, time_ns, reason, "check the dates of the trace, or raise --rate-scale or the rate")
    return time_ns
