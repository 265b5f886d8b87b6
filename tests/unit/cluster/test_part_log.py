"""The last lines of a server."""

import asyncio

import pytest

from stageline.cluster.part_log import KEPT_LINES, PartLog


async def test_lines_are_kept_and_passed_on_however_they_arrive(capsys: pytest.CaptureFixture[str]) -> None:
    log, reader = PartLog(), asyncio.StreamReader()
    for piece in (b"one\ntw", b"o\n\xff\nlast"):
        reader.feed_data(piece)
    reader.feed_eof()
    await log.pump(reader)
    assert log.tail(10) == ["one", "two", "�", "last"]
    assert log.tail(1) == ["last"]
    assert log.tail(0) == []
    assert capsys.readouterr().err == "one\ntwo\n�\nlast\n"


async def test_only_the_last_are_kept() -> None:
    log = PartLog()
    for number in range(KEPT_LINES + 5):
        log.add(str(number))
    assert len(log.tail(2 * KEPT_LINES)) == KEPT_LINES
    assert log.tail(2 * KEPT_LINES)[0] == "5"


async def test_who_follows_gets_new_lines_and_loses_the_oldest_when_behind() -> None:
    log = PartLog()
    log.add("before")
    lines = log.follow()
    first = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    log.add("after")
    assert await first == "after"
    for number in range(1_001):
        log.add(str(number))
    assert await anext(lines) == "1"
    await lines.aclose()
