"""Asks are patient: what answers itself is never asked."""

import asyncio

import pytest

from stageline.runtime import asking
from stageline.runtime.asking import Asking


class Link:
    """What a sender has promised, and what it was asked."""

    def __init__(self) -> None:
        self.promised_ns = 0
        self.asks: list[tuple[int, int]] = []
        self.asking = Asking(lambda key: self.promised_ns, lambda key, time_ns: self.asks.append((key, time_ns)))

    async def waited(self) -> None:
        """Returns when the ask has been sent or dropped."""
        while self.asking._timer is not None:
            await asyncio.sleep(0)


async def test_what_is_still_owed_is_asked_once_with_the_latest_time() -> None:
    link = Link()
    link.asking.want(3, 50)
    link.asking.want(3, 90)
    await link.waited()
    assert link.asks == [(3, 90)]


async def test_what_has_answered_itself_is_not_asked() -> None:
    link = Link()
    link.asking.want(3, 50)
    link.promised_ns = 50
    await link.waited()
    assert link.asks == []


async def test_patience_grows_with_asks_that_answer_themselves_and_shrinks_with_those_that_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "MOST_S", asking.LEAST_S * 4)
    link = Link()
    seen = []
    for promised_ns in (100, 100, 100, 0, 0, 0):
        link.promised_ns = promised_ns
        link.asking.want(1, 50)
        await link.waited()
        seen.append(round(link.asking._patience_s / asking.LEAST_S))
    assert seen == [2, 4, 4, 2, 1, 1]


async def test_nothing_is_asked_after_the_end() -> None:
    link = Link()
    link.asking.want(3, 50)
    link.asking.close()
    await asyncio.sleep(asking.LEAST_S * 2)
    assert link.asks == []
