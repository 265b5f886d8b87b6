"""What a link needs to know of the session that it belongs to."""

import asyncio
from typing import Any, Protocol

from stageline.errors import StagelineError
from stageline.sync.frames import Frame


class Upstream(Protocol):
    """The way back to the sender of an incoming link."""

    def ask(self, time_ns: int) -> None:
        """Ask it for a promise."""
        ...


class Downstream(Protocol):
    """The way to the receiver of an outgoing link."""

    def push(self, frame: Frame) -> None:
        """Send a frame, merged with those that have not left yet."""
        ...


class LinkOwner(Protocol):
    """One side of a session, as its links see it. Keys name links: a stage's by number, the router's by replica."""

    ended: "asyncio.Future[Any]"

    def attach_upstream(self, key: int, link: Upstream) -> None:
        """An incoming link is open."""
        ...

    def attach_downstream(self, key: int, link: Downstream) -> None:
        """The outgoing link that carries frames with `key`."""
        ...

    async def over(self) -> None:
        """Return when the session has ended; being cancelled ends nothing."""
        ...

    def received(self, key: int, frame: Frame) -> None:
        """A frame has come."""
        ...

    def asked(self, key: int, time_ns: int) -> None:
        """The far end of an outgoing link asks for a promise."""
        ...

    def fail(self, error: StagelineError) -> None:
        """End the session with an error."""
        ...

    @property
    def error(self) -> StagelineError | None:
        """Why the session failed, if it did."""
        ...
