"""The clock as an interface, so that schedules can be tested without waiting."""

import asyncio
import time
from contextlib import suppress
from typing import Protocol

from stageline.units import NS_PER_S


class Clock(Protocol):
    """Wall time in ns from an arbitrary origin; never runs backwards."""

    def now_ns(self) -> int:
        """The current time."""
        ...

    async def until(self, at_ns: int, woken: asyncio.Event | None = None) -> None:
        """Returns at `at_ns`, never earlier, or as soon as `woken` is set. Yields to other tasks even if it is due."""
        ...


class WallClock:
    """The host's monotonic clock."""

    def now_ns(self) -> int:
        """See Clock."""
        return time.monotonic_ns()

    async def until(self, at_ns: int, woken: asyncio.Event | None = None) -> None:
        """See Clock. It loops because event loops round delays to ms, some of them down."""
        left_ns = at_ns - time.monotonic_ns()
        if left_ns <= 0:
            await asyncio.sleep(0)
        while left_ns > 0 and not (woken and woken.is_set()):
            if woken is None:
                await asyncio.sleep(left_ns / NS_PER_S)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), left_ns / NS_PER_S)
            left_ns = at_ns - time.monotonic_ns()
