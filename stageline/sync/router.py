"""The router's side of the synchronisation: the conductor decides, this holds frames back and makes promises."""

from collections.abc import Callable, Iterable

from stageline.engine.conductor import Conductor
from stageline.engine.microbatch import Item
from stageline.engine.types import NEVER
from stageline.errors import ProtocolError
from stageline.sync.asking import Asking
from stageline.sync.frames import Frame
from stageline.sync.link_ends import FrameWindow, SendingEnd
from stageline.sync.machine import Asks, Frames
from stageline.sync.realtime import LiveClock, Pacing

Dispatched = Callable[[int, Iterable[Item]], None]


class RouterMachine:
    """All replicas behind one router; see `stageline.sync.machine.Machine`. Keys are replicas.

    `window_frames`: frames of a replica that may be under way; 0: no limit. `dispatched` is called with the replica and
    the microbatches of every frame. With a `clock` frames leave in wall time.
    """

    held_ns = NEVER  # the completion that a live clock waits for

    def __init__(
        self,
        conductor: Conductor,
        window_frames: int = 4,
        dispatched: Dispatched | None = None,
        clock: LiveClock | None = None,
    ) -> None:
        self.next_timer_ns = NEVER
        self.done = False
        self.promise_wanted = False  # a stage waits for a promise that could not be made at the last poll
        self._conductor, self._dispatched = conductor, dispatched
        self._replicas = conductor.router.replicas
        revisits = any(route.revisits for route in conductor.router.fleet.routes)
        self._promises = revisits  # without revisits FIFO is order enough, and no promise is ever needed
        self._windows = [FrameWindow(window_frames) for _ in self._replicas] if window_frames else None
        self._senders = [SendingEnd() for _ in self._replicas]
        self._pacing = Pacing(clock, {r.index: r.link.latency_ns for r in self._replicas}) if clock else None
        self._asking = Asking(lambda r: conductor.promised_ns[r]) if revisits else None
        self._news = True  # something to act on has come since the last poll
        self._confirmed = False  # so has a frame of what was acted on already
        self._settled = [False for _ in self._replicas]  # the last frame has come back: every ledger is empty
        self._held: list[list[Item]] = [[] for _ in self._replicas]
        self._expected = [0 for _ in self._replicas]
        self._asked_ns = [0 for _ in self._replicas]  # of the return link
        self._closing = False

    def receive(self, key: int, frame: Frame) -> None:
        """See Machine. Raises ProtocolError for a completion that was not expected."""
        conductor, expected, arrivals_ns = self._conductor, self._expected[key], []
        known = conductor.promised_ns[key]
        for item in frame.items:
            if item.microbatch.number != expected or item.arrival_ns < known:
                raise ProtocolError(
                    f"replica {key}: microbatch {item.microbatch.number} came back at {item.arrival_ns} ns; expected "
                    f"was microbatch {expected}, not before {known} ns"
                )
            expected += 1
            known = item.arrival_ns
            arrivals_ns.append(known)
        self._expected[key] = expected
        conductor.returned(key, arrivals_ns)
        self._confirmed = True
        if conductor.returns[key] or frame.promise_ns > known:
            self._news = True
        conductor.promise(key, max(known, frame.promise_ns))
        if self._windows is not None:
            self._windows[key].returned(len(arrivals_ns))
        if frame.last:
            self._settled[key] = True
            self.done = all(self._settled)

    def asked(self, key: int, time_ns: int) -> None:
        """See Machine: the stage of visit 0 asks."""
        self._news = True
        self._senders[key].asked(time_ns)
        if self._pacing is not None:
            self._pacing.asked(key, time_ns)

    def poll(self, now_ns: int) -> tuple[Frames, Asks]:
        """See Machine. What the conductor decides follows from what has come, never from `now_ns`."""
        frames: Frames = []
        asks: Asks = []
        news, self._news, self._confirmed = self._news, False, False
        if news:
            self._decide(frames, asks)
        timer_ns = NEVER
        if self._pacing is not None:
            if news or self._pacing.next_timer_ns < NEVER:
                frames = self._pacing.poll(now_ns, frames)
            timer_ns = self._pacing.next_timer_ns
        if self._asking is not None:
            asks = self._asking.poll(now_ns, asks, news=news)
            timer_ns = min(timer_ns, self._asking.next_timer_ns)
        self.next_timer_ns = timer_ns
        return frames, asks

    def _decide(self, frames: Frames, asks: Asks) -> None:
        """Let happen all that is safe; adds what it gives to send and to ask."""
        conductor = self._conductor
        conductor.advance()
        for r, dispatched in enumerate(conductor.dispatched):
            if dispatched:
                self._held[r] += dispatched
                conductor.dispatched[r] = []
            if self._held[r] or self._promises:
                frame = self._flush(r)
                if frame is not None:
                    frames.append((r, frame))
        if self._promises:
            self._ask_returns(asks)
        if conductor.next_arrival_ns >= NEVER and not self._closing and conductor.done:
            self._closing = True
            for r, replica in enumerate(self._replicas):
                frames.append((r, Frame([], NEVER, last=True, releases=replica.last_releases())))

    def _flush(self, r: int) -> Frame | None:
        """A frame if the window is open or a stage must know; promises never wait for the window."""
        held, sender = self._held[r], self._senders[r]
        if not held:
            return sender.frame([], self._promise(r)) if sender.unanswered else None
        window = self._windows[r] if self._windows is not None else None
        if window is not None:
            if not window.open and sender.asked_ns <= held[0].arrival_ns:
                return sender.frame([], held[0].arrival_ns)
            window.sent(len(held))
        self._held[r] = []
        if self._dispatched is not None:
            self._dispatched(r, held)
        return sender.frame(held, self._promise(r)) if self._promises else Frame(held, 0)

    def _promise(self, r: int) -> int:
        """Earliest arrival at visit 0 of a microbatch that has not been formed."""
        replica = self._replicas[r]
        at = self._conductor.next_event_ns(r)
        if at >= NEVER:
            return NEVER
        return replica.link.promise_ns(max(at, replica.gate_ns) + replica.overhead_ns)

    def _ask_returns(self, asks: Asks) -> None:
        """Pass on what stages ask: the router can tell only what the return links tell it."""
        conductor = self._conductor
        self.promise_wanted = False
        for r, sender in enumerate(self._senders):
            if not sender.unanswered:
                continue
            self.promise_wanted = True
            link = self._replicas[r].link
            ask_ns = sender.asked_ns - link.latency_ns - link.min_serialisation_ns
            own_ns = conductor.own_event_ns
            for other in [r] if own_ns >= ask_ns and not conductor.reactive else range(len(self._senders)):
                time_ns = min(ask_ns, own_ns + 1)
                if conductor.waits_for(other) and time_ns > max(conductor.promised_ns[other], self._asked_ns[other]):
                    self._asked_ns[other] = time_ns
                    asks.append((other, time_ns))
