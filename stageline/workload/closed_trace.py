"""A closed loop over a trace: a fixed number of users, each sends the next row when its last request has ended."""

import heapq
from collections.abc import Iterator

from stageline.engine.types import NEVER, Request
from stageline.workload.formats.base import TraceFormat
from stageline.workload.rows import RowCounts, TraceRow


class ClosedTrace:
    """What a load client with a limit on concurrency does: rows go out in file order, their times are not used.

    All users begin at 0. Users due at the same time go by number; which user sends a row changes nothing else.
    """

    reactive = True

    def __init__(
        self,
        trace: TraceFormat,
        rows: Iterator[TraceRow],
        counts: RowCounts,
        *,
        users: int,
        think_ns: int,
        limit: int,
        description: str,
    ) -> None:
        self._trace, self._rows, self._limit = trace, rows, limit
        self._think_ns = think_ns
        self._due = [(0, user) for user in range(users)]
        self._user_of: dict[int, int] = {}
        self._head = next(rows, None)
        self._taken = 0
        self.counts = counts
        self.description = description
        self.hash_block_tokens = trace.hash_block_tokens

    def next_arrival_ns(self) -> int | None:
        """See Workload; None while every user waits, and when the rows are used up."""
        return self._due[0][0] if self._due and self._head is not None else None

    def take(self) -> Request:
        """See Workload. A bad row raises BadInput here, one request before its turn."""
        row = self._head
        if row is None or not self._due:
            raise LookupError("take() when no arrival is known")
        due_ns, user = heapq.heappop(self._due)
        index = self._taken
        self._taken += 1
        self._user_of[index] = user
        self._head = next(self._rows, None)
        return row.request(index, due_ns)

    def finished(self, index: int, now_ns: int) -> None:
        """Schedules the user's next request."""
        heapq.heappush(self._due, (now_ns + self._think_ns, self._user_of.pop(index)))

    def horizon_ns(self) -> int:
        """See Workload: only `finished` creates arrivals."""
        return NEVER

    def fraction(self) -> float:
        """See DescribedWorkload."""
        return 1.0 if self._head is None else max(self._trace.file.fraction(), self._taken / self._limit)
