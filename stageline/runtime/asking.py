"""When a party really asks for a promise: after a little patience, because most asks answer themselves.

A blocked stage could ask at once; but while microbatches are under way the frame that unblocks it is mostly coming
already, and an ask that reaches the router opens its window early and makes all frames small. So an ask waits, and is
sent if its promise is still owed. How long is measured in the party's own pace, the mean time between its turns, and
adapts: an ask that answered itself doubles it, one that had to be sent halves it. That decides when bytes move, never a
result.
"""

import asyncio
from collections.abc import Callable

MIN_S, MAX_S = 0.0001, 0.25
MIN_TURNS, MAX_TURNS = 1 / 64, 32.0  # patience in mean times between turns
MEMORY = 8  # turns over which the mean is taken, roughly


class Asking:
    """The asks of one party. `promised_ns(key)` is what the sender of a link has promised so far."""

    def __init__(self, promised_ns: Callable[[int], int], send: Callable[[int, int], None]) -> None:
        self._promised_ns, self._send = promised_ns, send
        self._loop = asyncio.get_running_loop()
        self._wanted: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._turn_s, self._turned_at_s = 0.0, self._loop.time()
        self.patience_turns = 4.0

    @property
    def patience_s(self) -> float:
        """How long an ask waits now."""
        return min(MAX_S, max(MIN_S, self.patience_turns * self._turn_s))

    def turned(self) -> None:
        """The party has taken in what had come."""
        now_s = self._loop.time()
        self._turn_s += (now_s - self._turned_at_s - self._turn_s) / MEMORY
        self._turned_at_s = now_s

    def want(self, key: int, time_ns: int) -> None:
        """A promise up to `time_ns` is needed on a link."""
        self._wanted[key] = max(time_ns, self._wanted.get(key, 0))
        if self._timer is None:
            self._timer = self._loop.call_later(self.patience_s, self.expire)

    def expire(self) -> None:
        """Sends what is still owed."""
        self.close()
        wanted, self._wanted = self._wanted, {}
        owed = {key: time_ns for key, time_ns in wanted.items() if self._promised_ns(key) < time_ns}
        for key, time_ns in owed.items():
            self._send(key, time_ns)
        self.patience_turns = min(MAX_TURNS, max(MIN_TURNS, self.patience_turns * (0.5 if owed else 2)))

    def close(self) -> None:
        """Nothing is asked any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
