"""Tokens leave when they are due: all of a client's in one go, and never before."""

import asyncio

from router.live.delivery import Delivery, Lateness
from router.live.stream import Stream
from stageline.engine.types import RequestRecord
from stageline.runtime.clock import LiveClock


class Wall:
    """A wall clock that stands where it is put."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Bells:
    """A client that notes how many tokens it was told of."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.heard: list[list[int]] = []

    def ring(self) -> None:
        """See Wakeup."""
        self.heard.append([s.tokens for s in self.streams])

    def stream(self) -> Stream:
        """Another choice of its reply."""
        self.streams.append(Stream(len(self.streams), 0, self))
        return self.streams[-1]


def record(index: int) -> RequestRecord:
    """Of a request that has ended."""
    return RequestRecord(
        index=index, replica=0, arrival_ns=0, admitted_ns=0, first_token_ns=5, last_token_ns=9, prompt_tokens=1,
        output_tokens=2, preemptions=0, outcome="finished",
    )  # fmt: skip


async def turn() -> None:
    """Lets what was called soon happen."""
    await asyncio.sleep(0)


def set_up() -> tuple[Wall, Lateness, list[Stream], Delivery]:
    wall, lateness, ended = Wall(), Lateness(), list[Stream]()
    clock = LiveClock(0, 2.0, wall, lambda: 0)
    return wall, lateness, ended, Delivery(clock, lateness, ended.append)


async def test_a_client_is_told_once_of_all_that_is_due_and_of_nothing_else() -> None:
    wall, lateness, _, delivery = set_up()
    client, other = Bells(), Bells()
    first, second, third = client.stream(), client.stream(), other.stream()
    for stream, due_ns in ((first, 100), (second, 100), (third, 100), (first, 200), (second, 900)):
        delivery.token(stream, due_ns)
    wall.now_ns = 199  # dilation 2: emulated 99
    delivery.flush_soon()
    await turn()
    assert client.heard == other.heard == []
    wall.now_ns = 400
    delivery.flush_soon()
    assert client.heard == []  # frames of this turn go first
    await turn()
    assert (client.heard, other.heard) == ([[2, 1]], [[1]])
    assert (lateness.tokens, lateness.counts[0]) == (4, 4)
    assert lateness.total_s == (3 * 200 + 0) / 1e9
    delivery.close()


async def test_the_end_comes_with_the_last_token() -> None:
    wall, _, ended, delivery = set_up()
    client = Bells()
    stream = client.stream()
    delivery.token(stream, 7)
    delivery.end(stream, 7, record(0))
    wall.now_ns = 14
    delivery.flush_soon()
    await turn()
    assert client.heard == [[1]]
    assert stream.ended
    assert ended == [stream]
    delivery.token(stream, 7)  # an instant that has been handed out begins anew
    delivery.flush_soon()
    await turn()
    assert client.heard == [[1], [2]]
    delivery.close()


async def test_tokens_of_two_replicas_leave_in_the_order_of_time() -> None:
    wall, _, _, delivery = set_up()
    early, late = Bells(), Bells()
    delivery.token(late.stream(), 50)
    delivery.token(early.stream(), 20)
    wall.now_ns = 60
    delivery.flush_soon()
    await turn()
    assert (early.heard, late.heard) == ([[1]], [])
    delivery.close()
    wall.now_ns = 1000
    delivery.flush_soon()
    await turn()
    assert late.heard == []
