"""The router's node as a party drives it."""

from collections.abc import Callable, Iterable

from stageline.engine.microbatch import Item
from stageline.sync.frames import Frame
from stageline.sync.router import RouterNode


class RouterMachine:
    """A RouterNode as a party drives it: its links' keys are their replicas. `dispatched` is told what leaves."""

    def __init__(self, node: RouterNode, dispatched: Callable[[int, Iterable[Item]], None] | None = None) -> None:
        self._node, self._dispatched = node, dispatched
        self.asked = node.asked
        self.promised_ns = node.promised_ns

    def receive(self, key: int, frame: Frame) -> None:
        """Takes completions."""
        sequences = [item.microbatch.number for item in frame.items]
        arrivals = [item.arrival_ns for item in frame.items]
        self._node.receive(key, sequences, arrivals, frame.promise_ns, frame.last)

    def poll(self) -> tuple[Iterable[tuple[int, Frame]], Iterable[tuple[int, int]]]:
        """Decides what is safe."""
        frames, asks = self._node.poll()
        if self._dispatched:
            for replica, frame in frames:
                self._dispatched(replica, frame.items)
        return frames, [(replica, ask.time_ns) for replica, ask in asks]
