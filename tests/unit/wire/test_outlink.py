"""What waits for a link leaves in one frame."""

from collections import deque

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Item, Microbatch, Trail
from stageline.sync.frames import Frame
from stageline.wire.outlink import merged


def item(sequence: int) -> Item:
    return Item(sequence, Trail(0), Microbatch(sequence, BatchTotals(), 0, 0, 0, 0))


def test_waiting_frames_merge_and_keep_the_latest_promise():
    queue = deque([Frame([item(0)], 5), Frame([], 6), Frame([item(1), item(2)], 9, slip_ns=4)])
    assert merged(queue) == Frame([item(0), item(1), item(2)], 9, slip_ns=4)
    assert not queue


def test_a_last_frame_stands_alone():
    last = Frame([], 9, True, (4,))
    queue = deque([Frame([item(0)], 5), Frame([item(1)], 6), last])
    assert merged(queue) == Frame([item(0), item(1)], 6)
    assert merged(queue) == last


def test_a_frame_that_announces_releases_stands_alone():
    """Merged away, an idle cluster would show KV in use until its next request."""
    announced = Frame([], 0, releases=(4,))
    queue = deque([Frame([item(0)], 5), Frame([item(1)], 6), announced, Frame([], 8), Frame([item(2)], 9)])
    assert merged(queue) == Frame([item(0), item(1)], 6)
    assert merged(queue) == announced
    assert merged(queue) == Frame([item(2)], 9)
