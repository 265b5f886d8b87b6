"""What a client of a live session waits for."""

import asyncio
from array import array
from typing import Protocol

from stageline.engine.types import RequestRecord
from stageline.errors import StagelineError

MAX_TOKENS_AT_ONCE = 2048  # that are written in one turn of the event loop, which serves everybody
STALL_S = 30.0  # a client that takes nothing for that long is disconnected


class Listener(Protocol):
    """Whoever waits for the tokens of a stream."""

    def notify(self) -> None:
        """Tokens are due, or the stream has ended."""
        ...


class Signal:
    """A listener that wakes one waiter. Several streams may share it: a reply with several choices."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._set = False

    def notify(self) -> None:
        """See Listener."""
        self._set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Return once there has been a notification since the last wait."""
        while not self._set:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._set = False


class Stream:
    """One request: how many of its tokens are due, and how it ended. A number, so a slow reader costs no memory.

    `gaps_ns`: the emulated times between its tokens, for a client that asks; None: not kept.
    """

    __slots__ = ("arrival_ns", "error", "gaps_ns", "index", "listener", "record", "tokens")

    def __init__(self, index: int, arrival_ns: int, listener: Listener) -> None:
        self.index, self.arrival_ns, self.listener = index, arrival_ns, listener
        self.tokens = 0
        self.gaps_ns: array[int] | None = None
        self.record: RequestRecord | None = None
        self.error: StagelineError | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.record is not None or self.error is not None

    def listen(self, listener: Listener) -> None:
        """Notify `listener` from now on, and no longer the one before it."""
        self.listener = listener

    def fail(self, error: StagelineError) -> None:
        """The session broke off."""
        if not self.ended:
            self.error = error
            self.listener.notify()
