"""What a stage that is visited twice sends, and when."""

import pytest

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Item, Microbatch, Trail
from stageline.engine.route import Route
from stageline.engine.types import NEVER
from stageline.errors import ProtocolError
from stageline.sync.frames import Frame
from stageline.sync.realtime import LiveClock
from stageline.sync.stage import StageMachine
from tests.cluster.plans import small_plan

STEP_NS = 4000
ONE = BatchTotals(decode_sequences=1, decode_tokens=1, decode_kv_tokens=1, decode_pairs=1, sampled=1)


def dispatched(first: int, count: int) -> Frame:
    """A frame of link 0 with microbatches `first`, `first + 1`, ..., one every STEP_NS."""
    items = [
        Item(n * STEP_NS, Trail(n * STEP_NS), Microbatch(n, ONE, n * STEP_NS, 0, 0, 0))
        for n in range(first, first + count)
    ]
    return Frame(items, 0)


def machines(*, live: bool) -> tuple[StageMachine, StageMachine]:
    """The stages of the route 0, 1, 0. In a live session all is due: its clock is far ahead."""
    route = Route(small_plan(2, route=(0, 1, 0)))
    clock = LiveClock(0, 1.0, -NEVER) if live else None
    return StageMachine(route, 0, 0, 0, clock=clock), StageMachine(route, 0, 1, 0, clock=clock)


def returned(*, live: bool, frames: int, each: int) -> list[int]:
    """How many microbatches each frame carries to the router."""
    twice, between = machines(live=live)
    sizes = []

    def polled(machine: StageMachine) -> None:
        for link, frame in machine.poll(0)[0]:
            if link == 3:
                sizes.append(len(frame.items))
            else:
                there = between if link == 1 else twice
                there.receive(link, frame)
                polled(there)

    for n in range(frames):
        twice.receive(0, dispatched(n * each, each))
        polled(twice)
    twice.receive(0, Frame([], NEVER, last=True))
    polled(twice)
    assert twice.done
    return sizes


def test_frames_stay_whole_where_a_stage_is_visited_again() -> None:
    sizes = returned(live=False, frames=6, each=8)
    assert sum(sizes) == 48
    assert len([size for size in sizes if size]) <= 7


def test_a_paced_stage_sends_at_once_what_is_served() -> None:
    sizes = returned(live=True, frames=6, each=8)
    assert sum(sizes) == 48
    assert len([size for size in sizes if size]) >= 11


@pytest.mark.parametrize("live", [True, False])
def test_nothing_is_held_when_nothing_is_under_way(*, live: bool) -> None:
    """A promise frees what is served: no frame will come back to take it along."""
    twice, between = machines(live=live)
    twice.receive(0, dispatched(0, 1))
    (out,), _ = twice.poll(0)
    between.receive(*out)
    (back,), _ = between.poll(0)
    twice.receive(*back)
    assert twice.poll(0)[0] == []
    twice.receive(0, Frame([], back[1].items[0].arrival_ns + 1))
    ((link, frame),), _ = twice.poll(0)
    assert (link, len(frame.items)) == (3, 1)


def test_frames_and_asks_of_other_links_are_refused() -> None:
    twice, _ = machines(live=False)
    with pytest.raises(ProtocolError, match="link 1 does not end at stage 0"):
        twice.receive(1, Frame([], 0))
    with pytest.raises(ProtocolError, match="link 2 does not begin at stage 0"):
        twice.asked(2, 5)
