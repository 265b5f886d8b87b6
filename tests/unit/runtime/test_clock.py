"""The anchor of a live clock is the same moment on every host."""

import pytest

from stageline.runtime import clock
from stageline.runtime.clock import live_clock


def test_hosts_with_other_monotonic_clocks_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    unix_ns = 1_700_000_000_000_000_000
    monkeypatch.setattr(clock.time, "time_ns", lambda: unix_ns)
    for monotonic_ns in (77, 123_456_789):
        monkeypatch.setattr(clock.time, "monotonic_ns", lambda: monotonic_ns)  # noqa: B023
        assert live_clock(unix_ns - 5_000, 1.0).at_ns(monotonic_ns) == 5_000
