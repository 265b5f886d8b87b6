"""Tokens reach their clients when the wall clock reaches their stamps, never before."""

import asyncio
import heapq
from bisect import bisect_left
from collections.abc import Callable
from itertools import count

from router.live.stream import Stream
from stageline.engine.types import RequestRecord
from stageline.runtime.clock import LiveClock

LATENESS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Lateness:
    """How late tokens leave, in wall time: a histogram that goes on over sessions."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENESS_S) + 1)
        self.total_s = 0.0
        self.tokens = 0

    def add(self, late_s: float) -> None:
        """One token."""
        self.counts[bisect_left(LATENESS_S, late_s)] += 1
        self.total_s += late_s
        self.tokens += 1


class Delivery:
    """The tail of a live session. `ended` is told of every stream whose end has been delivered."""

    def __init__(self, clock: LiveClock, lateness: Lateness, ended: Callable[[Stream], None]) -> None:
        self._clock, self._lateness, self._ended = clock, lateness, ended
        self._due: list[tuple[int, int, Stream, RequestRecord | None]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    def token(self, stream: Stream, due_ns: int) -> None:
        """A token of `stream`."""
        heapq.heappush(self._due, (due_ns, next(self._order), stream, None))

    def end(self, stream: Stream, due_ns: int, record: RequestRecord) -> None:
        """The end of `stream`, after its last token."""
        heapq.heappush(self._due, (due_ns, next(self._order), stream, record))

    def flush(self) -> None:
        """Hands out what is due."""
        due, clock = self._due, self._clock
        if not due:
            return
        now_ns = clock.at_ns(0)
        while due and due[0][0] <= now_ns:
            due_ns, _, stream, record = heapq.heappop(due)
            if record is not None:
                stream.end(record)
                self._ended(stream)
                continue
            self._lateness.add((now_ns - due_ns) * clock.dilation / 1e9)
            stream.tokens += 1
            stream.mailbox.ring()
        if due and self._timer is None:
            delay_s = max(0.001, clock.wall_s_until(due[0][0]))
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def close(self) -> None:
        """Forgets what is not due yet."""
        self._due.clear()
        if self._timer:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        self.flush()
