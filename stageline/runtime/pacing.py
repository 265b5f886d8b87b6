"""Real-time pacing: in a live session frames leave when the wall clock reaches their departure.

It decides only when bytes move, never a result: stamps are data, and a replay without any pacing gives the same digest.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from stageline.engine.microbatch import Item
from stageline.runtime.clock import LiveClock
from stageline.runtime.party import Machine
from stageline.sync.frames import Frame
from stageline.wire.outlink import OutLink

# How early a frame may leave, in wall time: the event loop's timers are good to a millisecond, and a hop takes some
# tenths of one for real.
LEAD_NS = 1_000_000


class PacedLink:
    """The sending end of a link in a live session. Holds microbatches; promises pass at once, as far as they are true.

    While microbatches are held, what may be promised is the arrival of the first of them. A promise goes out alone only
    while the receiver has asked for more than it was told.
    """

    def __init__(self, clock: LiveClock, link: OutLink, latency_ns: int) -> None:
        self._clock, self._link, self._latency_ns = clock, link, latency_ns
        self._held: deque[Item] = deque()
        self._promise_ns = self._told_ns = self._asked_ns = 0
        self._last: Frame | None = None
        self._index = 0
        self._timer: asyncio.TimerHandle | None = None

    def push(self, frame: Frame) -> None:
        """Takes a frame; what is due of it leaves now."""
        self._index = frame.link
        if frame.last:
            self._last = frame
        self._held.extend(frame.items)
        self._promise_ns = max(self._promise_ns, frame.promise_ns)
        self._flush()

    def asked(self, time_ns: int) -> None:
        """The receiver wants to know until `time_ns`."""
        self._asked_ns = max(self._asked_ns, time_ns)
        self._flush()

    def close(self) -> None:
        """Forgets what is held."""
        self._held.clear()
        self._last = None
        if self._timer:
            self._timer.cancel()

    def _flush(self) -> None:
        held, due = self._held, []
        if held:
            reach_ns = self._clock.at_ns(LEAD_NS) + self._latency_ns
            while held and held[0].arrival_ns <= reach_ns:
                due.append(held.popleft())
        promise_ns = min(self._promise_ns, held[0].arrival_ns) if held else self._promise_ns
        if due or (promise_ns > self._told_ns and self._asked_ns > self._told_ns):
            self._told_ns = max(self._told_ns, promise_ns)
            self._send(Frame(self._index, due, self._told_ns))
        if held:
            self._arm(held[0].arrival_ns - self._latency_ns)
        elif self._last:
            self._send(self._last)
            self._last = None

    def _send(self, frame: Frame) -> None:
        self._link.encoder.slip_ns = self._clock.slip_ns
        self._link.push(frame)

    def _arm(self, depart_ns: int) -> None:
        """Wakes up when the first one held is due; a clock that slips meanwhile only makes that too early."""
        if self._timer is None:
            delay_s = max(0.001, self._clock.wall_s_until(depart_ns) - LEAD_NS / 2e9)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._flush()


class PacedMachine:
    """A machine whose outgoing links are paced: asks reach them too. `follow` is told of every frame's link."""

    def __init__(self, machine: Machine, follow: Callable[[int], None] = lambda _: None) -> None:
        self._machine, self._follow = machine, follow
        self.links: dict[int, PacedLink] = {}

    def receive(self, key: int, frame: Frame) -> None:
        """See Machine."""
        self._follow(key)
        self._machine.receive(key, frame)

    def asked(self, key: int, time_ns: int) -> None:
        """See Machine."""
        self._machine.asked(key, time_ns)
        self.links[key].asked(time_ns)

    def promised_ns(self, key: int) -> int:
        """See Machine."""
        return self._machine.promised_ns(key)

    def poll(self) -> tuple[Iterable[tuple[int, Frame]], Iterable[tuple[int, int]]]:
        """See Machine."""
        return self._machine.poll()

    def close(self) -> None:
        """Forgets what is held."""
        for link in self.links.values():
            link.close()
