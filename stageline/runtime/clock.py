"""The clock of a live session on this host."""

import time

from stageline.sync.realtime import LiveClock


def live_clock(anchor_unix_ns: int, dilation: float) -> LiveClock:
    """A clock anchored at a Unix time, which is mapped to this process's monotonic clock once, now."""
    return LiveClock(anchor_unix_ns, dilation, anchor_unix_ns - time.time_ns() + time.monotonic_ns())
