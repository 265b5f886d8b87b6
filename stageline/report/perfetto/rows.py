"""Rows for intervals that overlap, so that none overlap within a row."""

import heapq


class RowAllocator:
    """Gives each interval the lowest free row; intervals come in ascending order of begin, or nearly so."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []  # heap of (end, row)
        self._free: list[int] = []
        self._ends: list[int] = []

    def allocate(self, begin_ns: int, end_ns: int) -> int:
        """The interval's row."""
        while self._busy and self._busy[0][0] <= begin_ns:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        row = heapq.heappop(self._free) if self._free else len(self._ends)
        if row == len(self._ends):
            self._ends.append(end_ns)
        self._ends[row] = end_ns
        heapq.heappush(self._busy, (end_ns, row))
        return row
