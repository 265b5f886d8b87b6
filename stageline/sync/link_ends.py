"""Both ends of a link as its machines see them, and the window of frames under way on a replica's links."""

from collections import deque

from stageline.engine.microbatch import Item
from stageline.engine.types import NEVER
from stageline.errors import ProtocolError
from stageline.sync.frames import Frame


class ReceivingEnd:
    """Items that have arrived and were not served yet, and how much of the future the sender has promised."""

    __slots__ = ("asked_ns", "index", "promised_ns", "queue", "received")

    def __init__(self, index: int) -> None:
        self.index = index
        self.queue: deque[Item] = deque()
        self.promised_ns = 0
        self.asked_ns = 0
        self.received = 0

    def receive(self, items: list[Item], promise_ns: int) -> None:
        """Take a frame. Raises ProtocolError when it breaks an earlier promise or the order of arrivals."""
        known = self.promised_ns
        for item in items:
            if item.arrival_ns < known:
                raise ProtocolError(
                    f"link {self.index}: microbatch {item.microbatch.number} arrives at {item.arrival_ns} ns, after a "
                    f"promise that nothing arrives before {known} ns"
                )
            known = item.arrival_ns
        self.queue.extend(items)
        self.received += len(items)
        self.promised_ns = promise_ns if promise_ns > known else known

    def ask(self, time_ns: int) -> bool:
        """Need a promise up to `time_ns`; True: the sender has neither made it nor been asked for it."""
        if time_ns <= max(self.promised_ns, self.asked_ns) or time_ns >= NEVER:
            return False
        self.asked_ns = time_ns
        return True


class SendingEnd:
    """Promises on demand: a frame without items leaves only while the receiver asks for more than was promised."""

    __slots__ = ("asked_ns", "promised_ns")

    def __init__(self) -> None:
        self.asked_ns = 0
        self.promised_ns = 0

    def asked(self, time_ns: int) -> None:
        """The receiver wants to know that nothing arrives before `time_ns`."""
        self.asked_ns = max(self.asked_ns, time_ns)

    @property
    def unanswered(self) -> bool:
        """Whether the receiver waits for a promise that has not been made."""
        return self.asked_ns > self.promised_ns

    def frame(self, items: list[Item], promise_ns: int) -> Frame | None:
        """The frame to send now, if one is due.

        Send every increase of a wanted promise; waiting until the full time can be promised deadlocks.
        """
        grows = promise_ns > self.promised_ns
        if not items and not (grows and self.unanswered):
            return None
        if grows:
            self.promised_ns = min(promise_ns, NEVER)
        return Frame(items, self.promised_ns)


class FrameWindow:
    """A flow-control window in frames: while it is full, dispatches gather. It holds back bytes, never decisions.

    A frame has returned when its last microbatch has.
    """

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self._under_way: deque[int] = deque()  # microbatches of each frame that are out; they return in order

    @property
    def open(self) -> bool:
        """Whether one more frame may leave of its own accord."""
        return len(self._under_way) < self.frames

    def sent(self, microbatches: int) -> None:
        """A frame has left."""
        self._under_way.append(microbatches)

    def returned(self, microbatches: int) -> None:
        """That many microbatches have come back, oldest first."""
        under_way = self._under_way
        while microbatches:
            step = min(under_way[0], microbatches)
            under_way[0] -= step
            microbatches -= step
            if not under_way[0]:
                under_way.popleft()
