"""A party polls once for all that has come, and ends once."""

import asyncio

import pytest

from stageline.errors import KvOverdraw, LawBroken, StagelineError
from stageline.runtime.party import Party
from stageline.sync.frames import Frame


class Machine:
    """Notes what happens; `fails` is raised by the next poll."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.fails: Exception | None = None

    def receive(self, key: int, frame: Frame) -> None:
        self.events.append(("frame", key))

    def asked(self, key: int, time_ns: int) -> None:
        self.events.append(("asked", key, time_ns))

    def promised_ns(self, key: int) -> int:
        return 0

    def poll(self):
        if self.fails:
            raise self.fails
        self.events.append("poll")
        return [(7, Frame(7, [], 5))], [(3, 9)]


class Ends:
    """Both ends of a link."""

    def __init__(self) -> None:
        self.pushed: list[Frame] = []
        self.asks: list[int] = []

    def push(self, frame: Frame) -> None:
        self.pushed.append(frame)

    def ask(self, time_ns: int) -> None:
        self.asks.append(time_ns)


@pytest.fixture
async def party():
    made = Party("stage 1", Machine())
    made.downstream[7] = made.upstream[3] = Ends()
    return made


async def turned() -> None:
    """Lets everything that is due happen."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_all_that_has_come_makes_one_poll(party: Party):
    party.upstream[1] = Ends()
    party.release()
    await turned()
    party.machine.events.clear()
    party.received(1, Frame(1, [], 0))
    party.asked(7, 4)
    party.received(2, Frame(2, [], 0))
    await turned()
    assert party.machine.events == [("frame", 1), ("frame", 2), ("asked", 7, 4), "poll"]
    while not party.upstream[3].asks:
        await asyncio.sleep(0)
    assert party.upstream[3].asks[-1] == 9
    assert party.downstream[7].pushed[-1].promise_ns == 5


async def test_a_party_with_one_link_does_not_wait_for_more(party: Party):
    party.release()
    await turned()
    party.machine.events.clear()
    party.received(3, Frame(3, [], 0))
    assert party.machine.events == [("frame", 3), "poll"]
    party.asked(7, 4)
    party.received(3, Frame(3, [], 0))
    await turned()
    assert party.machine.events[2:] == [("frame", 3), ("asked", 7, 4), "poll"]


async def test_a_held_party_waits(party: Party):
    party.received(1, Frame(1, [], 0))
    await turned()
    assert not party.machine.events
    party.release()
    await turned()
    assert party.machine.events == [("frame", 1), "poll"]
    party.hold()
    party.received(1, Frame(1, [], 0))
    await turned()
    assert party.machine.events == [("frame", 1), "poll"]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (KvOverdraw("full"), KvOverdraw, "full"),
        (LawBroken("L3"), StagelineError, "law of emulated time is broken"),
        (KeyError("x"), StagelineError, "internal error: KeyError"),
    ],
)
async def test_an_error_ends_the_session_once(party: Party, error, kind, text):
    party.machine.fails = error
    party.release()
    await turned()
    assert isinstance(party.error.error, kind)
    assert text in str(party.error)
    assert party.error.party == "stage 1"
    party.fail(StagelineError("later"))
    party.close()
    assert text in str(party.error)


async def test_a_good_end(party: Party):
    party.close()
    party.release()
    await turned()
    assert party.error is None
    assert not party.machine.events


async def test_whoever_waits_for_the_end_and_is_cancelled_ends_nothing(party: Party):
    waiting = [asyncio.create_task(party.over()) for _ in range(2)]
    await turned()
    waiting[0].cancel()
    await turned()
    assert waiting[0].cancelled()
    assert not party.ended.done()
    party.close()
    await waiting[1]
    assert party.error is None
