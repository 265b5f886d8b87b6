"""Requests leave out of order; this puts their lines back into the order of a file or a digest."""

from collections import deque
from collections.abc import Callable


class ReorderBuffer:
    """Emits lines in the wanted order of their keys; holds only lines whose turn has not come.

    The wanted order is 0, 1, 2, ... unless `expect` has been called, which appends a key to it.
    """

    def __init__(self, emit: Callable[[bytes], object]) -> None:
        self._emit = emit
        self._held: dict[int, bytes] = {}
        self._wanted: deque[int] = deque()
        self._next = 0
        self._announced = False

    def expect(self, key: int) -> None:
        """The key whose line comes after all keys expected before."""
        self._announced = True
        self._wanted.append(key)

    def put(self, key: int, line: bytes) -> None:
        """A line, in any order; each key once."""
        self._held[key] = line
        if self._announced:
            while self._wanted and self._wanted[0] in self._held:
                self._emit(self._held.pop(self._wanted.popleft()))
        else:
            while self._next in self._held:
                self._emit(self._held.pop(self._next))
                self._next += 1

    def flush(self) -> None:
        """At the end: emits the lines that are left in the wanted order, without the keys that never came."""
        order = [key for key in self._wanted if key in self._held] or sorted(self._held)
        for key in order:
            self._emit(self._held.pop(key))
