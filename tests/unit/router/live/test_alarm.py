"""The timer of a live session: the earliest time that was asked for, whatever kind of handle the loop returns."""

import asyncio
from collections.abc import Callable

from router.live.alarm import MIN_S, Alarm


class Loop:
    """A loop whose clock stands still; its handles know no time, as uvloop's of short delays."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls: list[tuple[float, asyncio.Handle]] = []

    def time(self) -> float:
        """See AbstractEventLoop."""
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.Handle:
        """See AbstractEventLoop."""
        handle = asyncio.Handle(callback, (), self)  # type: ignore[arg-type]
        self.calls.append((self.now_s + delay_s, handle))
        return handle

    def get_debug(self) -> bool:
        """See AbstractEventLoop."""
        return False

    def go_to(self, now_s: float) -> None:
        """Runs what is due then."""
        self.now_s = now_s
        due = [handle for at_s, handle in self.calls if at_s <= now_s]
        self.calls = [call for call in self.calls if call[0] > now_s]
        for handle in due:
            if not handle.cancelled():
                handle._run()


def set_up() -> tuple[Loop, list[float], Alarm]:
    loop, rung = Loop(), list[float]()
    return loop, rung, Alarm(loop, lambda: rung.append(loop.now_s))  # type: ignore[arg-type]


def test_the_earliest_time_wins() -> None:
    loop, rung, alarm = set_up()
    alarm.within(5.0)
    alarm.within(2.0)
    alarm.within(3.0)
    assert [at_s for at_s, handle in loop.calls if not handle.cancelled()] == [102.0]
    loop.go_to(101.9)
    assert rung == []
    loop.go_to(110.0)
    assert rung == [110.0]


def test_it_can_be_set_again_and_off() -> None:
    loop, rung, alarm = set_up()
    alarm.within(1.0)
    loop.go_to(101.0)
    alarm.within(1.0)
    alarm.cancel()
    alarm.cancel()
    loop.go_to(103.0)
    assert rung == [101.0]
    alarm.within(0.5)
    loop.go_to(103.5)
    assert rung == [101.0, 103.5]


def test_the_past_is_as_soon_as_timers_are_good() -> None:
    loop, rung, alarm = set_up()
    alarm.within(-4.0)
    assert [at_s for at_s, _ in loop.calls] == [100.0 + MIN_S]
    assert rung == []
