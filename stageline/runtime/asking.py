"""When a party really asks for a promise: after a little patience, because most asks answer themselves.

A blocked stage could ask at once; but while microbatches are under way the frame that unblocks it is mostly coming
already, and an ask that reaches the router opens its window early and makes all frames small. So an ask waits, and is
sent if its promise is still owed. How long adapts: an ask that answered itself doubles the patience, one that had to be
sent halves it. That decides when bytes move, never a result.
"""

import asyncio
from collections.abc import Callable

LEAST_S, MOST_S = 0.0001, 0.002  # a lone microbatch must not wait; a full pipeline's round takes milliseconds


class Asking:
    """The asks of one party. `promised_ns(key)` is what the sender of a link has promised so far."""

    def __init__(self, promised_ns: Callable[[int], int], send: Callable[[int, int], None]) -> None:
        self._promised_ns, self._send = promised_ns, send
        self._wanted: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._patience_s = LEAST_S

    def want(self, key: int, time_ns: int) -> None:
        """A promise up to `time_ns` is needed on a link."""
        self._wanted[key] = max(time_ns, self._wanted.get(key, 0))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._expire)

    def close(self) -> None:
        """Nothing is asked any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        wanted, self._wanted = self._wanted, {}
        owed = {key: time_ns for key, time_ns in wanted.items() if self._promised_ns(key) < time_ns}
        for key, time_ns in owed.items():
            self._send(key, time_ns)
        self._patience_s = max(LEAST_S, self._patience_s / 2) if owed else min(MOST_S, self._patience_s * 2)
