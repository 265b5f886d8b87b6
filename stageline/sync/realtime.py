"""Emulated time in wall time: the clock of a live session, and pacing: frames leave when it reaches their departure.

Pacing decides only when bytes move, never a result: stamps are data, and a replay without it gives the same digest.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping

from stageline.engine.microbatch import Item
from stageline.engine.types import NEVER
from stageline.sync.frames import Frame
from stageline.sync.machine import Frames

# How early a frame may leave, in wall time: the event loop's timers are good to a millisecond, and a hop takes some
# tenths of one for real.
LEAD_NS = 1_000_000
_SLIPS_KEPT = 1_000


class LiveClock:
    """emulated = (wall - anchor - slip) / dilation, in ns; the anchor is emulated 0.

    It reads no clock: `wall_ns` is a reading of this process's monotonic clock, and `anchor_ns` the anchor on it.
    `anchor_unix_ns` is the same moment as Unix time, which several hosts share. `slip_ns` (wall time) only grows: the
    host could not keep up, and emulated time waited for it.
    """

    def __init__(self, anchor_unix_ns: int, dilation: float, anchor_ns: int) -> None:
        self.anchor_unix_ns, self.dilation = anchor_unix_ns, dilation
        self.slip_ns = 0
        self._anchor_ns = anchor_ns
        self._slips: list[tuple[int, int]] = []  # (emulated time at which the clock stood still, slip_ns from then on)

    def at_ns(self, wall_ns: int) -> int:
        """Emulated time at a wall time. After a slip it may lie before what was said earlier."""
        return int((wall_ns - self._anchor_ns - self.slip_ns) / self.dilation)

    def wall_ns(self, emulated_ns: int) -> int:
        """The wall time from which on it is `emulated_ns` or later, unless the clock slips."""
        return self.unslipped_ns(emulated_ns) + self.slip_ns

    def unslipped_ns(self, emulated_ns: int) -> int:
        """`wall_ns` less the slip: it never changes, so a queue of moments can be kept by it."""
        return self._anchor_ns + math.ceil(emulated_ns * self.dilation)

    def hold_at(self, emulated_ns: int, wall_ns: int) -> int:
        """Slip so that it is `emulated_ns` at `wall_ns`, if it were later; returns by how much wall time."""
        late_ns = max(0, int(wall_ns - self._anchor_ns - self.slip_ns - emulated_ns * self.dilation))
        if late_ns:
            self.slip_ns += late_ns
            self._slips = [*self._slips[-_SLIPS_KEPT:], (emulated_ns, self.slip_ns)]
        return late_ns

    def slip_to(self, slip_ns: int) -> None:
        """Follow the clock of another process."""
        self.slip_ns = max(self.slip_ns, slip_ns)

    def unix_ns(self, emulated_ns: int) -> int:
        """Unix time of an emulated time, by the slips so far: those at or after it did not delay it. Never decreases.

        Only the last slips are known: what lies before them counts as delayed by the first of them.
        """
        past = bisect_left(self._slips, (emulated_ns,))
        slip_ns = self._slips[max(0, past - 1)][1] if past or len(self._slips) > _SLIPS_KEPT else 0
        return self.anchor_unix_ns + slip_ns + round(emulated_ns * self.dilation)


class Pacing:
    """The outgoing links of one machine. Microbatches wait for their departure; promises pass at once.

    While microbatches are held, the arrival of the first of them is all that may be promised. A promise goes out alone
    only while the receiver has asked for more than it has been promised. `latency_ns`: of each link, by key.
    """

    def __init__(self, clock: LiveClock, latency_ns: Mapping[int, int]) -> None:
        self.next_timer_ns = NEVER
        self._clock = clock
        self._links = {key: _PacedLink(latency) for key, latency in latency_ns.items()}

    def asked(self, key: int, time_ns: int) -> None:
        """The receiver wants to know that nothing arrives before `time_ns`."""
        link = self._links[key]
        link.asked_ns = max(link.asked_ns, time_ns)

    def poll(self, now_ns: int, frames: Frames) -> Frames:
        """Take the machine's frames; returns what is due by now, at most one frame with items per link."""
        out: Frames = []
        for key, frame in frames:
            link = self._links[key]
            if frame.releases and not frame.last:
                out.append((key, frame))  # it is about the past, and is not ordered
            for item in frame.items:
                link.held.append((self._clock.unslipped_ns(item.arrival_ns - link.latency_ns), item))
            link.promise_ns = max(link.promise_ns, frame.promise_ns)
            if frame.last:
                link.last = frame
        slip_ns, timer_ns = self._clock.slip_ns, NEVER
        for key, link in self._links.items():
            held, due, promise_ns = link.held, [], link.promise_ns
            while held:
                departs_ns = held[0][0] + slip_ns
                if departs_ns - LEAD_NS > now_ns:
                    # The middle of the time in which it may leave: a timer that rings a little early is good enough.
                    timer_ns = min(timer_ns, departs_ns - LEAD_NS // 2)
                    promise_ns = min(promise_ns, held[0][1].arrival_ns)
                    break
                due.append(held.popleft()[1])
            if due or link.asked_ns > link.promised_ns < promise_ns:
                link.promised_ns = max(link.promised_ns, promise_ns)
                out.append((key, Frame(due, link.promised_ns, slip_ns=slip_ns)))
            if link.last is not None and not held:
                out.append((key, link.last))
                link.last = None
        self.next_timer_ns = timer_ns
        return out


class _PacedLink:
    """What one link holds back, and what its receiver was promised and has asked for."""

    __slots__ = ("asked_ns", "held", "last", "latency_ns", "promise_ns", "promised_ns")

    def __init__(self, latency_ns: int) -> None:
        self.latency_ns = latency_ns
        self.held: deque[tuple[int, Item]] = deque()  # with the wall time of their departure, without slips
        self.promise_ns = self.promised_ns = self.asked_ns = 0
        self.last: Frame | None = None
