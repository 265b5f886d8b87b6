"""Emulated time as a function of wall time, and what leaves a paced link when."""

import pytest

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Item, Microbatch, Trail
from stageline.engine.types import NEVER
from stageline.sync.frames import Frame
from stageline.sync.realtime import LEAD_NS, LiveClock, Pacing

MS = 1_000_000


def test_the_clock_slips_only_later() -> None:
    clock = LiveClock(500, 2.0, 500)
    assert clock.at_ns(1_000) == 250
    assert clock.at_ns(2_000) == 750
    assert clock.hold_at(600, 2_000) == 300
    assert clock.at_ns(2_000) == 600
    assert clock.hold_at(600, 2_000) == 0
    assert clock.at_ns(2_400) == 800
    clock.slip_to(100)
    assert clock.slip_ns == 300


def test_the_unix_time_of_a_moment_knows_the_slips_before_it() -> None:
    clock = LiveClock(1_000_000, 2.0, 1_000_000)
    assert clock.unix_ns(100) == 1_000_200
    assert clock.hold_at(400, 1_001_000) == 200
    assert clock.hold_at(400, 1_001_000) == 0
    assert clock.hold_at(1_000, 1_003_000) == 800
    assert [clock.unix_ns(at) for at in (0, 400, 401, 1_000, 1_001)] == [
        1_000_000, 1_000_800, 1_001_002, 1_002_200, 1_003_002,
    ]  # fmt: skip
    for at in range(2_000, 4_000):
        clock.hold_at(at, 1_003_000 + (at - 1_999) * 1_000)
    moments = [clock.unix_ns(at) for at in range(1, 5_000)]
    assert moments == sorted(moments)
    assert clock.unix_ns(1_001) > 1_003_002  # forgotten: counts as delayed by the oldest slip that is known


@pytest.mark.parametrize("dilation", [0.3, 1.0, 4.0, 1e6 / 3])
def test_the_wall_time_of_a_moment_is_the_first_at_which_it_has_come(dilation: float) -> None:
    clock = LiveClock(0, dilation, 1_000)
    clock.slip_to(77)
    for emulated_ns in (0, 1, 7, 12_345, 500_000_001):
        wall_ns = clock.wall_ns(emulated_ns)
        assert clock.at_ns(wall_ns) >= emulated_ns > clock.at_ns(wall_ns - 1) - (emulated_ns == 0)
        assert clock.unslipped_ns(emulated_ns) == wall_ns - 77


class Paced:
    """One paced link with a wall clock that is set by hand."""

    def __init__(self) -> None:
        self.clock = LiveClock(0, 1.0, 0)
        self.pacing = Pacing(self.clock, {3: MS})
        self.wall_ns = 0
        self.sent: list[tuple[list[int], int, bool]] = []
        self.slips_ns: list[int] = []

    def push(self, *frames: Frame) -> None:
        """The machine has these to send."""
        for key, frame in self.pacing.poll(self.wall_ns, [(3, frame) for frame in frames]):
            assert key == 3
            self.sent.append(([i.arrival_ns for i in frame.items], frame.promise_ns, frame.last))
            self.slips_ns.append(frame.slip_ns)

    def asked(self, time_ns: int) -> None:
        """The receiver asks."""
        self.pacing.asked(3, time_ns)
        self.push()

    def at(self, wall_ns: int) -> None:
        """The wall reaches a time."""
        self.wall_ns = wall_ns
        self.push()


def item(arrival_ns: int) -> Item:
    """A microbatch that arrives then."""
    return Item(arrival_ns, Trail(0), Microbatch(0, BatchTotals(), 0, 0, 0, 0))


def test_microbatches_leave_when_they_are_due() -> None:
    paced = Paced()
    paced.push(Frame([item(2 * MS), item(10 * MS), item(11 * MS)], 0))
    assert paced.sent == [([2 * MS], 0, False)]
    assert paced.pacing.next_timer_ns == 9 * MS - LEAD_NS // 2
    paced.at(9 * MS - LEAD_NS - 1)
    assert len(paced.sent) == 1
    paced.at(9 * MS - LEAD_NS)
    paced.at(20 * MS)
    assert paced.sent[1:] == [([10 * MS], 0, False), ([11 * MS], 0, False)]
    assert paced.pacing.next_timer_ns == NEVER


def test_promises_are_not_held_and_stay_true() -> None:
    paced = Paced()
    paced.push(Frame([item(30 * MS)], 50 * MS))
    assert paced.sent == []
    paced.asked(40 * MS)
    assert paced.sent == [([], 30 * MS, False)]
    paced.at(30 * MS)
    assert paced.sent[1:] == [([30 * MS], 50 * MS, False)]
    paced.asked(60 * MS)
    paced.push(Frame([], 70 * MS))
    assert paced.sent[2:] == [([], 70 * MS, False)]


def test_a_promise_that_nobody_asked_for_stays_here() -> None:
    paced = Paced()
    paced.push(Frame([], 70 * MS))
    assert paced.sent == []


def test_the_last_frame_waits_for_what_is_held() -> None:
    paced = Paced()
    paced.push(Frame([item(30 * MS)], 0), Frame([], NEVER, last=True))
    assert paced.sent == []
    paced.at(40 * MS)
    assert [last for _, _, last in paced.sent] == [False, True]


def test_a_slip_delays_what_is_held_and_travels_on() -> None:
    paced = Paced()
    paced.push(Frame([item(10 * MS)], 0))
    paced.clock.slip_to(5 * MS)
    paced.at(9 * MS)
    assert paced.sent == []
    assert paced.pacing.next_timer_ns == 14 * MS - LEAD_NS // 2
    paced.at(14 * MS)
    assert paced.sent == [([10 * MS], 0, False)]
    assert paced.slips_ns == [5 * MS]
