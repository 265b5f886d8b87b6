"""Closes HTTP connections that nobody uses: idle ones, half a request's headers, hosts that have vanished."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterable, Iterator
from typing import Protocol

from aiohttp import web

log = logging.getLogger(__name__)
IDLE_S = 60.0  # without a request; clients' own pools give up after 4 to 15 s
SWEEP_S = 5.0
# A host that has vanished is noticed after some 60 s, whether bytes are under way to it or not.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3), (18, 60_000))
# 18: TCP_USER_TIMEOUT, in ms


class Connection(Protocol):
    """A connection of the HTTP server."""

    transport: asyncio.Transport | None


class IdleConnections:
    """Knows since when each connection has had no request. A connection is its transport."""

    def __init__(self, idle_s: float = 0.0) -> None:
        self._idle_s = idle_s or IDLE_S
        self._busy: dict[object, int] = {}  # requests under way
        self._since_s: dict[object, float] = {}

    @contextlib.contextmanager
    def request(self, request: web.Request) -> Iterator[None]:
        """A request is under way inside."""
        transport = request.transport
        self._busy[transport] = self._busy.get(transport, 0) + 1
        self._since_s.pop(transport, None)
        try:
            yield
        finally:
            self._busy[transport] -= 1
            if not self._busy[transport]:
                del self._busy[transport]

    def sweep(self, connections: Iterable[Connection], now_s: float) -> int:
        """Aborts what has been idle for too long; returns how many that were."""
        found = {c.transport for c in connections} - {None}
        aborted = 0
        for transport in found:
            if transport is None or transport in self._busy:
                continue
            if transport not in self._since_s:
                self._since_s[transport] = now_s
                _notice_vanished(transport)
            elif now_s - self._since_s[transport] >= self._idle_s:
                transport.abort()
                aborted += 1
        self._since_s = {t: since_s for t, since_s in self._since_s.items() if t in found}
        return aborted

    async def keep_sweeping(self, server: web.Server) -> None:
        """Sweeps until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            if aborted := self.sweep(server.connections, loop.time()):
                log.info("closed idle HTTP connections", extra={"connections": aborted, "idle_s": self._idle_s})


def _notice_vanished(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    with contextlib.suppress(OSError):  # the connection has just been closed
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
