"""Emulated time of a live session as a function of wall time."""

import time
from bisect import bisect_left
from collections.abc import Callable

_SLIPS_KEPT = 1_000


class LiveClock:
    """emulated now = (wall - anchor - slip) / dilation, in ns; the anchor is emulated 0.

    The anchor comes as Unix time, so that several hosts share it, and is mapped to this process's monotonic clock once.
    `slip_ns` (wall time) only grows: the host could not keep up, and emulated time waited for it.
    """

    def __init__(
        self,
        anchor_unix_ns: int,
        dilation: float,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.anchor_unix_ns, self.dilation = anchor_unix_ns, dilation
        self.slip_ns = 0
        self._wall_ns = monotonic_ns
        self._anchor_ns = anchor_unix_ns - unix_ns() + monotonic_ns()
        self._latest_ns = 0
        self._slips: list[tuple[int, int]] = []  # (emulated time at which the clock stood still, slip_ns from then on)

    def now_ns(self) -> int:
        """Emulated now; never decreases and is never negative."""
        now = self.at_ns(0)
        self._latest_ns = max(self._latest_ns, now)
        return self._latest_ns

    def at_ns(self, ahead_wall_ns: int) -> int:
        """Emulated time that much wall time from now; may lie before what `now_ns` has said, after a slip."""
        return int((self._wall_ns() + ahead_wall_ns - self._anchor_ns - self.slip_ns) / self.dilation)

    def wall_s_until(self, emulated_ns: int) -> float:
        """Seconds of wall time until then; negative when it has passed."""
        due_ns = self._anchor_ns + self.slip_ns + emulated_ns * self.dilation
        return (due_ns - self._wall_ns()) / 1e9

    def late_ns(self, emulated_ns: int) -> int:
        """Wall time since then; negative when it lies ahead."""
        return int(self._wall_ns() - self._anchor_ns - self.slip_ns - emulated_ns * self.dilation)

    def hold_at(self, emulated_ns: int) -> int:
        """Slips so that it is `emulated_ns` now, if it is later; returns by how much wall time."""
        late_ns = max(0, self.late_ns(emulated_ns))
        if late_ns:
            self.slip_ns += late_ns
            self._slips = [*self._slips[-_SLIPS_KEPT:], (emulated_ns, self.slip_ns)]
        return late_ns

    def unix_ns(self, emulated_ns: int) -> int:
        """When that was, by the slips so far: those at or after a moment did not delay it. Never decreases.

        Only the last slips are known: what lies before them counts as delayed by those that came first of them.
        """
        past = bisect_left(self._slips, (emulated_ns,))
        slip_ns = self._slips[max(0, past - 1)][1] if past or len(self._slips) > _SLIPS_KEPT else 0
        return self.anchor_unix_ns + slip_ns + round(emulated_ns * self.dilation)

    def slip_to(self, slip_ns: int) -> None:
        """Follows another party's clock."""
        self.slip_ns = max(self.slip_ns, slip_ns)
