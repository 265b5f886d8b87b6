"""When a machine really asks for a promise: after a little patience, because most asks answer themselves.

A blocked machine could ask at once. But while microbatches are under way, the frame that unblocks it is usually coming
already, and an ask that reaches the router opens its window early and makes all frames small. So an ask waits, and is
sent if its promise has not been made by then. How long is measured in the machine's own pace, the mean time between its
polls, and adapts: an ask that answered itself doubles it, one that had to be sent halves it. That decides when bytes
move, never a result.
"""

from collections.abc import Callable

from stageline.engine.types import NEVER
from stageline.sync.machine import Asks

MIN_NS, MAX_NS = 500_000, 250_000_000  # event loops have no finer timers: a shorter patience ends at once
MIN_TURNS, MAX_TURNS = 1 / 64, 32.0  # patience in mean times between polls
MEMORY = 8  # polls over which the mean is taken, roughly
FIRST_TURN_NS = 50_000_000  # the pace assumed at first: asking early costs more than waiting once


class Asking:
    """The asks of one machine. `promised_ns(key)` is what the sender of a link has promised so far."""

    def __init__(self, promised_ns: Callable[[int], int]) -> None:
        self.next_timer_ns = NEVER
        self.patience_turns = 4.0
        self._promised_ns = promised_ns
        self._wanted: dict[int, int] = {}
        self._turn_ns = float(FIRST_TURN_NS)
        self._turned_at_ns: int | None = None

    @property
    def patience_ns(self) -> int:
        """How long an ask waits now; 0: until the next poll."""
        patience_ns = min(MAX_NS, int(self.patience_turns * self._turn_ns))
        return patience_ns if patience_ns >= MIN_NS else 0

    def poll(self, now_ns: int, wanted: Asks, *, news: bool) -> Asks:
        """Take what is wanted; returns the asks to send: those whose patience is over and that are still owed.

        `news`: something had come; polls that only the time has brought do not set the pace.
        """
        if news:
            self._note_pace(now_ns)
        due = self._expired() if now_ns >= self.next_timer_ns else []
        for key, time_ns in wanted:
            self._wanted[key] = max(time_ns, self._wanted.get(key, 0))
        if wanted and self.next_timer_ns >= NEVER:
            self.next_timer_ns = now_ns + self.patience_ns
        return due

    def _note_pace(self, now_ns: int) -> None:
        if self._turned_at_ns is not None:
            self._turn_ns += (now_ns - self._turned_at_ns - self._turn_ns) / MEMORY
        self._turned_at_ns = now_ns

    def _expired(self) -> Asks:
        self.next_timer_ns = NEVER
        wanted, self._wanted = self._wanted, {}
        due = [(key, time_ns) for key, time_ns in wanted.items() if self._promised_ns(key) < time_ns]
        self.patience_turns = min(MAX_TURNS, max(MIN_TURNS, self.patience_turns * (0.5 if due else 2)))
        return due
