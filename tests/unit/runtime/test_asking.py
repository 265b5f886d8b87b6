"""Asks are patient: what answers itself is never asked."""

import asyncio

from stageline.runtime.asking import MAX_S, MIN_S, Asking


class Link:
    """What a sender has promised, and what it was asked."""

    def __init__(self) -> None:
        self.promised_ns = 0
        self.asks: list[tuple[int, int]] = []
        self.asking = Asking(lambda key: self.promised_ns, lambda key, time_ns: self.asks.append((key, time_ns)))


async def test_what_is_still_owed_is_asked_once_with_the_latest_time() -> None:
    link = Link()
    link.asking.want(3, 50)
    link.asking.want(3, 90)
    while not link.asks:
        await asyncio.sleep(0)
    assert link.asks == [(3, 90)]


async def test_what_has_answered_itself_is_not_asked() -> None:
    link = Link()
    link.asking.want(3, 50)
    link.promised_ns = 50
    link.asking.expire()
    assert link.asks == []


async def test_patience_grows_with_asks_that_answer_themselves_and_shrinks_with_those_that_do_not() -> None:
    link = Link()
    seen = []
    for promised_ns in (0, 0, 100, 100, 100, 100):
        link.promised_ns = promised_ns
        link.asking.want(1, 50)
        link.asking.expire()
        seen.append(link.asking.patience_turns)
    assert seen == [2.0, 1.0, 2.0, 4.0, 8.0, 16.0]


async def test_patience_follows_the_pace_of_the_party_within_bounds() -> None:
    asking = Link().asking
    assert asking.patience_s == MIN_S
    asking._turned_at_s -= 0.08  # a slow turn
    asking.turned()
    assert 0.03 < asking.patience_s < 0.1
    asking._turned_at_s -= 1000
    asking.turned()
    assert asking.patience_s == MAX_S


async def test_nothing_is_asked_after_the_end() -> None:
    link = Link()
    link.asking.want(3, 50)
    timer = link.asking._timer
    assert timer is not None
    assert not timer.cancelled()
    link.asking.close()
    assert timer.cancelled()
