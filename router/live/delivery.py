"""Tokens reach their clients when the wall clock reaches their stamps, never before."""

import asyncio
import heapq
from bisect import bisect_left
from collections.abc import Callable
from itertools import count

from router.live.stream import Stream, Wakeup
from stageline.engine.types import RequestRecord
from stageline.runtime.clock import LiveClock

LATENESS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Lateness:
    """How late tokens leave, in wall time: a histogram that goes on over sessions."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENESS_S) + 1)
        self.total_s = 0.0
        self.tokens = 0

    def add(self, late_s: float, tokens: int) -> None:
        """So many tokens."""
        self.counts[bisect_left(LATENESS_S, late_s)] += tokens
        self.total_s += late_s * tokens
        self.tokens += tokens


class Delivery:
    """The tail of a live session. `ended` is told of every stream whose end has been delivered.

    Tokens of one instant, which is what a microbatch brings, are one entry here; and a client is told once of all that
    is due to it at a flush.
    """

    def __init__(self, clock: LiveClock, lateness: Lateness, ended: Callable[[Stream], None]) -> None:
        self._clock, self._lateness, self._ended = clock, lateness, ended
        self._due: list[tuple[int, int, list[Stream], list[tuple[Stream, RequestRecord]]]] = []
        self._order = count()
        self._latest_ns = -1  # of the entry that takes more
        self._tokens: list[Stream] = []
        self._ends: list[tuple[Stream, RequestRecord]] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None

    def token(self, stream: Stream, due_ns: int) -> None:
        """A token of `stream`."""
        if due_ns != self._latest_ns:
            self._entry(due_ns)
        self._tokens.append(stream)

    def end(self, stream: Stream, due_ns: int, record: RequestRecord) -> None:
        """The end of `stream`, after its last token."""
        if due_ns != self._latest_ns:
            self._entry(due_ns)
        self._ends.append((stream, record))

    def flush_soon(self) -> None:
        """Hands out what is due once frames that were pushed in this turn are on their way: the pipeline goes first."""
        if self._due and self._soon is None:
            self._soon = self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Forgets what is not due yet."""
        self._due.clear()
        self._latest_ns = -1
        for handle in (self._timer, self._soon):
            if handle:
                handle.cancel()

    def _entry(self, due_ns: int) -> None:
        self._latest_ns, self._tokens, self._ends = due_ns, [], []
        heapq.heappush(self._due, (due_ns, next(self._order), self._tokens, self._ends))

    def _flush(self) -> None:
        self._soon = None
        due, clock = self._due, self._clock
        now_ns = clock.at_ns(0)
        bells: dict[Wakeup, None] = {}  # each once, in the order of their first token
        while due and due[0][0] <= now_ns:
            due_ns, _, tokens, ends = heapq.heappop(due)
            if due_ns == self._latest_ns:
                self._latest_ns = -1
            for stream in tokens:
                stream.tokens += 1
                bells[stream.mailbox] = None
            if tokens:
                self._lateness.add((now_ns - due_ns) * clock.dilation / 1e9, len(tokens))
            for stream, record in ends:
                stream.record = record
                bells[stream.mailbox] = None
                self._ended(stream)
        for bell in bells:
            bell.ring()
        if due and self._timer is None:
            delay_s = max(0.001, clock.wall_s_until(due[0][0]))
            self._timer = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._soon is None:
            self._flush()
