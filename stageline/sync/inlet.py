"""The receiving end of a link: items in order of arrival, the sender's promise, and what was asked of it."""

from collections import deque

from stageline.engine.microbatch import Item
from stageline.engine.types import NEVER
from stageline.errors import ProtocolError


class Inlet:
    """Items not yet served, and how much of the future is known."""

    __slots__ = ("index", "promised_ns", "queue", "received", "wanted_ns")

    def __init__(self, index: int) -> None:
        self.index = index
        self.queue: deque[Item] = deque()
        self.promised_ns = 0
        self.wanted_ns = 0
        self.received = 0

    def receive(self, items: list[Item], promise_ns: int) -> None:
        """Take a frame. Raises ProtocolError when it breaks an earlier promise or the order of arrivals."""
        known = self.promised_ns
        for item in items:
            if item.arrival_ns < known:
                raise ProtocolError(
                    f"link {self.index}: microbatch {item.microbatch.number} arrives at {item.arrival_ns} ns, but "
                    f"nothing was to come before {known} ns"
                )
            known = item.arrival_ns
        self.queue.extend(items)
        self.received += len(items)
        self.promised_ns = max(promise_ns, known)

    def want(self, time_ns: int) -> bool:
        """Whether asking for `time_ns` says something new to the sender; remembers it."""
        if time_ns <= max(self.promised_ns, self.wanted_ns) or time_ns >= NEVER:
            return False
        self.wanted_ns = time_ns
        return True
