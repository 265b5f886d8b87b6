"""The shell polls its machine once for all that has come, keeps one timer, and ends once."""

import asyncio
import time

import pytest

from stageline.engine.types import NEVER
from stageline.errors import KvOverdraw, LawBroken, StagelineError
from stageline.runtime.shell import TICK_NS, SessionShell
from stageline.sync.frames import Frame


class Machine:
    """Notes what happens; `fails` is raised by the next poll."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.fails: Exception | None = None
        self.next_timer_ns = NEVER
        self.done = False

    def receive(self, key: int, frame: Frame) -> None:
        self.events.append(("frame", key))

    def asked(self, key: int, time_ns: int) -> None:
        self.events.append(("asked", key, time_ns))

    def poll(self, now_ns: int):
        if self.fails:
            raise self.fails
        if now_ns >= self.next_timer_ns:
            self.next_timer_ns = NEVER
        self.events.append("poll")
        return [(7, Frame([], 5))], [(3, 9)]


class Follower:
    """Notes when it is polled, among the machine's events."""

    def __init__(self, machine: Machine) -> None:
        self.next_timer_ns = NEVER
        self._machine = machine

    def poll(self, now_ns: int) -> None:
        assert now_ns >= self.next_timer_ns
        self.next_timer_ns = NEVER
        self._machine.events.append("follower")


class Ends:
    """Both ends of a link."""

    def __init__(self) -> None:
        self.pushed: list[Frame] = []
        self.asks: list[int] = []

    def push(self, frame: Frame) -> None:
        self.pushed.append(frame)

    def ask(self, time_ns: int) -> None:
        self.asks.append(time_ns)


class Set:
    """A shell whose machine has one incoming and one outgoing link."""

    def __init__(self) -> None:
        self.machine, self.ends = Machine(), Ends()
        self.follower = Follower(self.machine)
        self.shell = SessionShell("stage 1", self.machine, follower=self.follower)
        self.shell.attach_downstream(7, self.ends)
        self.shell.attach_upstream(3, self.ends)

    async def until(self, event: object) -> None:
        """Waits for an event."""
        async with asyncio.timeout(10):
            while event not in self.machine.events:
                await asyncio.sleep(0)


@pytest.fixture
async def made() -> Set:
    return Set()


async def turned() -> None:
    """Lets everything that is due happen."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_all_that_has_come_makes_one_poll(made: Set):
    shell, machine = made.shell, made.machine
    shell.attach_upstream(1, Ends())
    shell.release()
    await turned()
    machine.events.clear()
    shell.received(1, Frame([], 0))
    shell.asked(7, 4)
    shell.received(2, Frame([], 0))
    await turned()
    assert machine.events == [("frame", 1), ("frame", 2), ("asked", 7, 4), "poll"]
    assert made.ends.asks[-1] == 9
    assert made.ends.pushed[-1].promise_ns == 5


async def test_with_one_incoming_link_it_does_not_wait_for_more(made: Set):
    shell, machine = made.shell, made.machine
    shell.release()
    await turned()
    machine.events.clear()
    shell.received(3, Frame([], 0))
    assert machine.events == [("frame", 3), "poll"]
    shell.asked(7, 4)
    shell.received(3, Frame([], 0))
    await turned()
    assert machine.events[2:] == [("frame", 3), ("asked", 7, 4), "poll"]


async def test_a_held_shell_waits(made: Set):
    shell, machine = made.shell, made.machine
    shell.received(1, Frame([], 0))
    await turned()
    assert not machine.events
    shell.release()
    await turned()
    assert machine.events == [("frame", 1), "poll"]
    shell.hold()
    shell.received(1, Frame([], 0))
    await turned()
    assert machine.events == [("frame", 1), "poll"]


async def test_the_machine_is_polled_at_its_timer(made: Set):
    shell, machine = made.shell, made.machine
    machine.next_timer_ns = time.monotonic_ns() + 20 * TICK_NS
    due_ns = machine.next_timer_ns
    shell.release()
    await turned()
    machine.events.clear()
    await made.until("poll")
    assert time.monotonic_ns() > due_ns - TICK_NS
    assert "follower" not in machine.events


async def test_a_timer_that_is_set_anew_replaces_the_one_before(made: Set):
    shell, machine = made.shell, made.machine
    machine.next_timer_ns = time.monotonic_ns() + 1000 * TICK_NS
    shell.release()
    await turned()
    machine.next_timer_ns = time.monotonic_ns() + 5 * TICK_NS
    shell.wake()
    await turned()
    machine.events.clear()
    await made.until("poll")
    assert machine.next_timer_ns == NEVER
    assert shell._timer is None or shell._timer.cancelled()


async def test_a_timer_that_is_due_rings_in_the_next_iteration(made: Set):
    shell, machine = made.shell, made.machine
    machine.next_timer_ns = time.monotonic_ns() + 1000 * TICK_NS
    shell.release()
    await turned()
    machine.events.clear()
    machine.poll = lambda now_ns: machine.events.append(now_ns) or ([], [])
    machine.next_timer_ns = 0
    shell.received(3, Frame([], 0))
    await asyncio.sleep(0)
    assert [event for event in machine.events if event != ("frame", 3)] == sorted(set(machine.events[1:]))
    assert len(machine.events) == 3
    shell.close()


async def test_what_follows_comes_after_the_frames_are_on_their_way(made: Set):
    made.follower.next_timer_ns = 0
    made.ends.push = lambda _: asyncio.get_running_loop().call_soon(made.machine.events.append, "written")
    made.shell.release()
    await turned()
    assert made.machine.events[:4] == ["poll", "written", "poll", "follower"]


async def test_the_follower_has_its_turn_though_frames_come_all_the_time(made: Set):
    made.shell.release()
    await turned()
    made.follower.next_timer_ns = 0
    for _ in range(3):
        made.shell.received(3, Frame([], 0))
        await asyncio.sleep(0)
    assert "follower" in made.machine.events


async def test_the_follower_is_polled_at_its_timer(made: Set):
    made.follower.next_timer_ns = due_ns = time.monotonic_ns() + 5 * TICK_NS
    made.machine.poll = lambda _: ([], [])
    made.shell.release()
    await made.until("follower")
    assert time.monotonic_ns() >= due_ns


async def test_whoever_waits_for_the_machine_hears_of_its_end_or_of_the_sessions(made: Set):
    waiting = [asyncio.create_task(made.shell.machine_done()) for _ in range(2)]
    await turned()
    waiting[0].cancel()
    made.machine.done = True
    made.shell.release()
    assert await waiting[1] is True
    broken = Set()
    broken.shell.fail(StagelineError("gone"))
    assert await broken.shell.machine_done() is False


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (KvOverdraw("full"), KvOverdraw, "full"),
        (LawBroken("L3"), StagelineError, "law of emulated time is broken"),
        (KeyError("x"), StagelineError, "internal error: KeyError"),
    ],
)
async def test_an_error_ends_the_session_once(made: Set, error, kind, text):
    shell = made.shell
    made.machine.fails = error
    shell.release()
    await turned()
    assert isinstance(shell.error.error, kind)
    assert text in str(shell.error)
    assert shell.error.party == "stage 1"
    shell.fail(StagelineError("later"))
    shell.close()
    assert text in str(shell.error)


async def test_a_good_end(made: Set):
    made.shell.close()
    made.shell.release()
    await turned()
    assert made.shell.error is None
    assert not made.machine.events


async def test_nothing_rings_after_the_end(made: Set):
    made.machine.next_timer_ns = time.monotonic_ns() + 1000 * TICK_NS
    made.shell.release()
    await turned()
    timer = made.shell._timer
    assert not timer.cancelled()
    made.shell.close()
    assert timer.cancelled()


async def test_whoever_waits_for_the_end_and_is_cancelled_ends_nothing(made: Set):
    waiting = [asyncio.create_task(made.shell.over()) for _ in range(2)]
    await turned()
    waiting[0].cancel()
    await turned()
    assert waiting[0].cancelled()
    assert not made.shell.ended.done()
    made.shell.close()
    await waiting[1]
    assert made.shell.error is None
