"""What a stage that is visited twice sends, and when."""

import pytest

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Item, Microbatch
from stageline.engine.route import Route
from stageline.engine.types import NEVER
from stageline.sync.frames import Frame
from stageline.sync.stage import StageNode
from tests.cluster.plans import small_plan

STEP_NS = 4000
ONE = BatchTotals(decode_sequences=1, decode_tokens=1, decode_kv_tokens=1, decode_pairs=1, sampled=1)


def dispatched(first: int, count: int) -> Frame:
    """A frame of link 0 with microbatches `first`, `first + 1`, ..., one every STEP_NS."""
    items = [
        Item(n * STEP_NS, n * STEP_NS, Microbatch(n, ONE, n * STEP_NS, 0, 0, 0)) for n in range(first, first + count)
    ]
    return Frame(0, items, 0)


def returned(*, gathers: bool, frames: int, each: int) -> list[int]:
    """How many microbatches each frame carries to the router over the route 0, 1, 0."""
    route = Route(small_plan(2, route=(0, 1, 0)))
    twice, between = StageNode(route, 0, 0, 0, gathers=gathers), StageNode(route, 0, 1, 0)
    sizes = []

    def polled(node: StageNode) -> None:
        for frame in node.poll()[0]:
            if frame.link == 3:
                sizes.append(len(frame.items))
            else:
                there = between if frame.link == 1 else twice
                there.receive(frame)
                polled(there)

    for n in range(frames):
        twice.receive(dispatched(n * each, each))
        polled(twice)
    twice.receive(Frame(0, [], NEVER, last=True))
    polled(twice)
    return sizes


def test_frames_stay_whole_where_a_stage_is_visited_again() -> None:
    sizes = returned(gathers=True, frames=6, each=8)
    assert sum(sizes) == 48
    assert len([size for size in sizes if size]) <= 7


def test_a_paced_stage_sends_at_once_what_is_served() -> None:
    sizes = returned(gathers=False, frames=6, each=8)
    assert sum(sizes) == 48
    assert len([size for size in sizes if size]) >= 11


@pytest.mark.parametrize("gathers", [True, False])
def test_nothing_is_held_when_nothing_is_under_way(*, gathers: bool) -> None:
    """A promise frees what is served: no frame will come back to take it along."""
    route = Route(small_plan(2, route=(0, 1, 0)))
    twice, between = StageNode(route, 0, 0, 0, gathers=gathers), StageNode(route, 0, 1, 0)
    twice.receive(dispatched(0, 1))
    (out,), _ = twice.poll()
    between.receive(out)
    (back,), _ = between.poll()
    twice.receive(back)
    assert twice.poll()[0] == []
    twice.receive(Frame(0, [], back.items[0].arrival_ns + 1))
    (frame,), _ = twice.poll()
    assert (frame.link, len(frame.items)) == (3, 1)
