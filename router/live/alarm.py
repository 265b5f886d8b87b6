"""One timer that is set again and again: the earliest time wins."""

import asyncio
from collections.abc import Callable

MIN_S = 0.001  # timers of the event loop are no better


class Alarm:
    """Calls `ring` once after the shortest delay that was asked for since it last did."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop, self._ring = loop, ring
        self._handle: asyncio.Handle | None = None
        self._at_s = 0.0  # kept here: what uvloop returns for a short delay is no TimerHandle and does not know it

    def within(self, delay_s: float) -> None:
        """Rings after `delay_s`, or earlier if that was asked for before."""
        delay_s = max(MIN_S, delay_s)
        at_s = self._loop.time() + delay_s
        if self._handle is not None:
            if self._at_s <= at_s:
                return
            self._handle.cancel()
        self._handle, self._at_s = self._loop.call_later(delay_s, self._go), at_s

    def cancel(self) -> None:
        """Does not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _go(self) -> None:
        self._handle = None
        self._ring()
