"""What leaves a paced link, and when. The loop is never run: timers are looked at, not waited for."""

import asyncio
from typing import Any

import pytest

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Item, Microbatch
from stageline.engine.types import NEVER
from stageline.runtime.clock import LiveClock
from stageline.runtime.pacing import LEAD_NS, PacedLink
from stageline.sync.frames import Frame

MS = 1_000_000


class FakeLink:
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.encoder = type("Encoder", (), {"slip_ns": 0})()
        self.sent: list[tuple[list[int], int, bool]] = []

    def push(self, frame: Frame) -> None:
        """A frame has left."""
        self.sent.append(([i.arrival_ns for i in frame.items], frame.promise_ns, frame.last))


class Paced:
    """A paced link with a wall clock that is set by hand."""

    def __init__(self) -> None:
        self.wall_ns = 0
        self.clock = LiveClock(0, 1.0, monotonic_ns=lambda: self.wall_ns, unix_ns=lambda: self.wall_ns)
        self.out = FakeLink()
        link: Any = self.out
        self.link = PacedLink(self.clock, link, latency_ns=MS)

    def at(self, wall_ns: int) -> None:
        """Lets the wall reach a time and the timer ring."""
        self.wall_ns = wall_ns
        self.link._ring()


@pytest.fixture
async def paced() -> Paced:
    """Inside a loop, which timers need."""
    assert asyncio.get_running_loop()
    return Paced()


def item(arrival_ns: int) -> Item:
    """A microbatch that arrives then."""
    load = BatchTotals(
        decode_sequences=1, decode_tokens=1, decode_kv_tokens=1, decode_pairs=1, prefill_sequences=0, prefill_tokens=0,
        prefill_kv_tokens=0, prefill_pairs=0, sampled=1,
    )  # fmt: skip
    return Item(arrival_ns, 0, Microbatch(0, load, 0, 0, 0, 0))


async def test_microbatches_leave_when_they_are_due(paced: Paced) -> None:
    paced.link.push(Frame(1, [item(2 * MS), item(10 * MS), item(11 * MS)], 0))
    assert paced.out.sent == [([2 * MS], 0, False)]
    paced.at(9 * MS - LEAD_NS - 1)
    assert len(paced.out.sent) == 1
    paced.at(9 * MS - LEAD_NS)
    paced.at(20 * MS)
    assert paced.out.sent[1:] == [([10 * MS], 0, False), ([11 * MS], 0, False)]


async def test_promises_are_not_held_and_stay_true(paced: Paced) -> None:
    paced.link.push(Frame(1, [item(30 * MS)], 50 * MS))
    assert paced.out.sent == []
    paced.link.asked(40 * MS)
    assert paced.out.sent == [([], 30 * MS, False)]
    paced.at(30 * MS)
    assert paced.out.sent[1:] == [([30 * MS], 50 * MS, False)]
    paced.link.asked(60 * MS)
    paced.link.push(Frame(1, [], 70 * MS))
    assert paced.out.sent[2:] == [([], 70 * MS, False)]


async def test_a_promise_that_nobody_asked_for_stays_here(paced: Paced) -> None:
    paced.link.push(Frame(1, [], 70 * MS))
    assert paced.out.sent == []


async def test_the_last_frame_waits_for_what_is_held(paced: Paced) -> None:
    paced.link.push(Frame(1, [item(30 * MS)], 0))
    paced.link.push(Frame(1, [], NEVER, last=True))
    assert paced.out.sent == []
    paced.at(40 * MS)
    assert [last for _, _, last in paced.out.sent] == [False, True]


async def test_a_slip_delays_what_is_held_and_travels_on(paced: Paced) -> None:
    paced.link.push(Frame(1, [item(10 * MS)], 0))
    paced.clock.slip_to(5 * MS)
    paced.at(9 * MS)
    assert paced.out.sent == []
    paced.at(14 * MS)
    assert paced.out.sent == [([10 * MS], 0, False)]
    assert paced.out.encoder.slip_ns == 5 * MS
