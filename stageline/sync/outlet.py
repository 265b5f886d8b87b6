"""The sending end of a link: which promises have been made, which are wanted, and whether a frame must go out."""

from stageline.engine.microbatch import Item
from stageline.engine.types import NEVER
from stageline.sync.frames import Frame


class Outlet:
    """Promises on demand: a frame without items leaves only while the receiver wants more than it has been promised."""

    __slots__ = ("asked_ns", "index", "sent_ns", "speaks")

    def __init__(self, index: int, *, speaks: bool) -> None:
        self.index = index
        self.speaks = speaks  # on a route without revisits FIFO is order enough and no promise is ever needed
        self.asked_ns = 0
        self.sent_ns = 0

    def asked(self, time_ns: int) -> None:
        """The receiver wants to know until `time_ns`."""
        self.asked_ns = max(self.asked_ns, time_ns)

    @property
    def owes(self) -> bool:
        """Whether the receiver waits for a promise that has not been made."""
        return self.asked_ns > self.sent_ns

    def frame(self, items: list[Item], promise_ns: int) -> Frame | None:
        """The frame to send now, if one is due. Every growth of a wanted promise is: to wait for all deadlocks."""
        if not items and not (self.speaks and promise_ns > self.sent_ns and self.owes):
            return None
        if promise_ns > self.sent_ns:
            self.sent_ns = min(promise_ns, NEVER)
        return Frame(self.index, items, self.sent_ns)
