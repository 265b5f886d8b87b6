"""What a client of a live session waits for."""

import asyncio
from typing import Protocol

from stageline.engine.types import RequestRecord
from stageline.errors import StagelineError

STALL_S = 30.0  # a client that takes nothing for so long is let go


class Wakeup(Protocol):
    """Who wants to know."""

    def ring(self) -> None:
        """A token is due, or the stream has ended."""
        ...


class Mailbox:
    """Wakes one waiter. Several streams may share it: a reply with several choices."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._rung = False

    def ring(self) -> None:
        """Something is there."""
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Until something is there."""
        while not self._rung:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._rung = False


class Stream:
    """One request: how many of its tokens are due, and how it ended. A number, so a slow reader costs no memory."""

    __slots__ = ("arrival_ns", "error", "index", "mailbox", "record", "tokens")

    def __init__(self, index: int, arrival_ns: int, mailbox: Wakeup) -> None:
        self.index, self.arrival_ns, self.mailbox = index, arrival_ns, mailbox
        self.tokens = 0
        self.record: RequestRecord | None = None
        self.error: StagelineError | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.record is not None or self.error is not None

    def fail(self, error: StagelineError) -> None:
        """The session broke off."""
        if not self.ended:
            self.error = error
            self.mailbox.ring()
