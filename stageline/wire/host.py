"""Whom a link belongs to."""

import asyncio
from typing import Any, Protocol

from stageline.errors import StagelineError
from stageline.sync.frames import Frame


class Upstream(Protocol):
    """The way back to the sender of an incoming link."""

    def ask(self, time_ns: int) -> None:
        """Asks it for a promise."""
        ...


class Downstream(Protocol):
    """The way to the receiver of an outgoing link."""

    def push(self, frame: Frame) -> None:
        """Sends a frame, merged with what has not left yet."""
        ...


class Host(Protocol):
    """The party of a session, as its links see it. Keys name links: a stage's by number, the router's by replica."""

    upstream: dict[int, Upstream]
    downstream: dict[int, Downstream]
    ended: "asyncio.Future[Any]"

    async def over(self) -> None:
        """Returns when the session has ended; being cancelled ends nothing."""
        ...

    def received(self, key: int, frame: Frame) -> None:
        """A frame has come."""
        ...

    def asked(self, key: int, time_ns: int) -> None:
        """The far end of an outgoing link asks for a promise."""
        ...

    def fail(self, error: StagelineError) -> None:
        """The session can't go on."""
        ...

    @property
    def error(self) -> StagelineError | None:
        """Why the session failed, if it did."""
        ...
