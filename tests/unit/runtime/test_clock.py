"""Emulated time as a function of wall time."""

from stageline.runtime.clock import LiveClock


def test_the_clock_never_runs_backwards_and_slips_only_later() -> None:
    wall = [1_000]
    clock = LiveClock(500, 2.0, monotonic_ns=lambda: wall[0], unix_ns=lambda: wall[0])
    assert clock.now_ns() == 250
    wall[0] = 2_000
    assert clock.now_ns() == 750
    assert clock.hold_at(600) == 300
    assert clock.now_ns() == 750
    assert clock.at_ns(0) == 600
    wall[0] = 2_400
    assert clock.now_ns() == 800
    clock.slip_to(100)
    assert clock.slip_ns == 300


def test_wall_time_until_and_since() -> None:
    wall = [2_000_000_000]
    clock = LiveClock(1_000_000_000, 4.0, monotonic_ns=lambda: wall[0], unix_ns=lambda: wall[0])
    assert clock.now_ns() == 250_000_000
    assert clock.wall_s_until(500_000_000) == 1.0
    assert clock.late_ns(125_000_000) == 500_000_000
    assert clock.at_ns(400) == 250_000_100


def test_hosts_with_other_monotonic_clocks_agree() -> None:
    unix = 1_700_000_000_000_000_000
    one = LiveClock(unix - 5_000, 1.0, monotonic_ns=lambda: 77, unix_ns=lambda: unix)
    other = LiveClock(unix - 5_000, 1.0, monotonic_ns=lambda: 123_456_789, unix_ns=lambda: unix)
    assert one.now_ns() == other.now_ns() == 5_000
