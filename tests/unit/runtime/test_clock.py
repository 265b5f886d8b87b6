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


def test_the_wall_time_of_a_moment_knows_the_slips_before_it() -> None:
    wall = [1_000_000]
    clock = LiveClock(1_000_000, 2.0, monotonic_ns=lambda: wall[0], unix_ns=lambda: wall[0])
    assert clock.unix_ns(100) == 1_000_200
    wall[0] = 1_001_000
    assert clock.hold_at(400) == 200
    assert clock.hold_at(400) == 0
    wall[0] = 1_003_000
    assert clock.hold_at(1_000) == 800
    assert [clock.unix_ns(at) for at in (0, 400, 401, 1_000, 1_001)] == [
        1_000_000, 1_000_800, 1_001_002, 1_002_200, 1_003_002,
    ]  # fmt: skip
    for at in range(2_000, 4_000):
        wall[0] += 1_000
        clock.hold_at(at)
    moments = [clock.unix_ns(at) for at in range(1, 5_000)]
    assert moments == sorted(moments)
    assert clock.unix_ns(1_001) > 1_003_002  # forgotten: counts as delayed by the oldest slip that is known


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
