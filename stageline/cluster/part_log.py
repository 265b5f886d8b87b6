"""What a local server has logged: its last lines are kept for `stageline logs`, and go on to this process's stderr."""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator

KEPT_LINES = 1000
_CHUNK = 1 << 16
_FOLLOWED = 1000  # lines that a slow reader may be behind; it then misses the oldest


class PartLog:
    """The last lines of a server, over all its restarts."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._followers: set[asyncio.Queue[str]] = set()

    def add(self, line: str) -> None:
        """Keep a line, and give it to everybody who follows."""
        self._lines.append(line)
        for queue in self._followers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(line)

    def tail(self, count: int) -> list[str]:
        """The last lines, at most `count`."""
        return list(self._lines)[-count:] if count > 0 else []

    async def follow(self) -> AsyncIterator[str]:
        """New lines, without end."""
        queue: asyncio.Queue[str] = asyncio.Queue(_FOLLOWED)
        self._followers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._followers.discard(queue)

    async def pump(self, stderr: asyncio.StreamReader) -> None:
        """Keep what a server writes, line by line, and write it to this process's stderr, until the server ends."""
        rest = b""
        while chunk := await stderr.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            self._pass_on(lines)
        self._pass_on([rest] if rest else [])

    def _pass_on(self, lines: list[bytes]) -> None:
        for raw in lines:
            line = raw.decode(errors="replace")
            self.add(line)
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                sys.stderr.write(line + "\n")
