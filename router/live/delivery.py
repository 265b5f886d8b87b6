"""Tokens reach their clients when the wall clock reaches their stamps, never before."""

import heapq
from bisect import bisect_left
from collections.abc import Callable
from itertools import count

from router.live.stream import Listener, Stream
from stageline.engine.types import NEVER, Observer, RequestRecord
from stageline.errors import StagelineError
from stageline.sync.realtime import LiveClock
from stageline.units import NS_PER_S

LATENESS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


class Lateness:
    """How late tokens leave, in wall time: a histogram over all sessions."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENESS_S) + 1)
        self.total_s = 0.0
        self.tokens = 0

    def add(self, late_s: float, tokens: int) -> None:
        """That many tokens were that late."""
        self.counts[bisect_left(LATENESS_S, late_s)] += tokens
        self.total_s += late_s * tokens
        self.tokens += tokens


class Delivery:
    """The streams of a live session: an Observer of its router, and the Follower of its machine.

    Tokens of one instant, which is what a microbatch brings, are one entry here, and a listener is notified once of all
    that is due to it at a poll. `watch` sees every token too, `ended` every record, and `idle` is called when the last
    stream has ended.
    """

    def __init__(
        self,
        clock: LiveClock,
        lateness: Lateness,
        ended: Callable[[RequestRecord], None],
        watch: Observer | None = None,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        self.next_timer_ns = NEVER
        self.streams: dict[int, Stream] = {}
        self._clock, self._lateness = clock, lateness
        self._ended, self._watch, self._idle = ended, watch, idle
        # By the wall time at which they are due, without slips: tokens and ends of one emulated time.
        self._due: list[tuple[int, int, list[Stream], list[tuple[Stream, RequestRecord]]]] = []
        self._order = count()
        self._latest_ns = -1  # of the entry that takes more
        self._tokens: list[Stream] = []
        self._ends: list[tuple[Stream, RequestRecord]] = []

    def open(self, index: int, arrival_ns: int, listener: Listener) -> Stream:
        """The stream of a request that arrives."""
        stream = self.streams[index] = Stream(index, arrival_ns, listener)
        return stream

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        if now_ns != self._latest_ns:
            self._entry(now_ns)
        stream = self.streams[index]
        self._tokens.append(stream)
        if stream.gaps_ns is not None and since_ns is not None:
            stream.gaps_ns.append(now_ns - since_ns)
        if self._watch is not None:
            self._watch.token(index, now_ns, since_ns)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        due_ns = (record.last_token_ns if record.outcome == "finished" else 0) or 0
        if due_ns != self._latest_ns:
            self._entry(due_ns)
        self._ends.append((self.streams[record.index], record))
        self._ended(record)
        if self._watch is not None:
            self._watch.request(record)

    def poll(self, now_ns: int) -> None:
        """See Follower: hand out what is due."""
        due, slip_ns = self._due, self._clock.slip_ns
        listeners: dict[Listener, None] = {}  # each once, in the order of their first token
        while due and due[0][0] + slip_ns <= now_ns:
            due_wall_ns, _, tokens, ends = heapq.heappop(due)
            if tokens is self._tokens:
                self._latest_ns = -1
            for stream in tokens:
                stream.tokens += 1
                listeners[stream.listener] = None
            if tokens:
                self._lateness.add((now_ns - slip_ns - due_wall_ns) / NS_PER_S, len(tokens))
            for stream, record in ends:
                stream.record = record
                listeners[stream.listener] = None
                del self.streams[stream.index]
                if not self.streams:
                    self._idle()
        self.next_timer_ns = due[0][0] + slip_ns if due else NEVER
        for listener in listeners:
            listener.notify()

    def fail(self, error: StagelineError) -> None:
        """The session is over. Requests that were served to their end keep it, though it is not due yet: they count as
        finished. All others fail, and what is not due of them is forgotten.
        """
        served = {stream: record for _, _, _, ends in self._due for stream, record in ends}
        for _, _, tokens, _ in self._due:
            for stream in tokens:
                stream.tokens += stream in served
        for stream, record in served.items():
            stream.record = record
            del self.streams[stream.index]
            stream.listener.notify()
        self._due.clear()
        self._latest_ns, self.next_timer_ns = -1, NEVER
        for stream in self.streams.values():
            stream.fail(error)
        self.streams.clear()

    def _entry(self, due_ns: int) -> None:
        self._latest_ns, self._tokens, self._ends = due_ns, [], []
        entry = (self._clock.unslipped_ns(due_ns), next(self._order), self._tokens, self._ends)
        heapq.heappush(self._due, entry)
        self.next_timer_ns = self._due[0][0] + self._clock.slip_ns
