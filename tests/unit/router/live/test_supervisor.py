"""The supervisor of live sessions says so when it can't go on."""

import asyncio
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from router.cluster.stages import StageTable
from router.live import supervisor
from router.live.options import LiveOptions
from router.live.session import LiveSession
from stageline.errors import Busy, ProtocolError, Unavailable
from stageline.runtime.deployment import Deployment
from tests.unit.engine.builders import plan


class Broken:
    """A session that can't be opened, for a reason that is no StagelineError."""

    clock = SimpleNamespace(slip_ns=0)

    def __init__(self, *_: object) -> None:
        """As a LiveSession's."""

    async def open(self, advertise: str) -> None:
        """See LiveSession."""
        raise ValueError("no such thing")

    async def close(self, error: object) -> None:
        """See LiveSession."""


def supervised() -> supervisor.LiveSupervisor:
    """Of stages that are healthy."""
    served = Deployment(plan())
    table = cast(StageTable, SimpleNamespace(healthy=True, deployment=served))
    return supervisor.LiveSupervisor(served.fleet, table, LiveOptions())


async def test_a_bug_is_logged_and_shown_to_clients(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "LiveSession", Broken)
    kept = supervised()
    kept.start("")
    assert kept._task is not None
    await asyncio.wait({kept._task})
    with pytest.raises(Unavailable, match="internal error: ValueError: no such thing"):
        kept.open_session(1)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    async with asyncio.timeout(5):
        await kept.pause()  # a virtual run need not wait for it
    await kept.stop()


def test_a_refusal_always_has_a_reason() -> None:
    """Also while a session that had no trouble is being closed."""
    kept = supervised()
    for reason in ("the live session is not open yet", ""):
        kept.reason = reason
        with pytest.raises(Unavailable, match=r"no live session is open: the live session is .*"):
            kept.open_session(1)
        assert kept.why_not


class Wall:
    """Time that passes when told to."""

    now_s = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_s


class Reopening:
    """A session that lost a stage. Every further attempt ends after 3 s, as `ends` says: not opened, lost, or good."""

    def __init__(self, wall: Wall, *ends: str) -> None:
        self.retries, self.may_retry, self.clock = 0, True, SimpleNamespace(slip_ns=0)
        self.tries = 0
        self._wall, self._ends = wall, ends

    def stand_still(self) -> None:
        """See LiveSession."""

    async def break_off(self) -> None:
        """See LiveSession."""

    def begin_again(self) -> SimpleNamespace:
        """See LiveSession."""
        return SimpleNamespace(machine=None, connections=SimpleNamespace(lose=None))

    async def again(self, advertise: str) -> None:
        """See LiveSession."""
        end = self._ends[min(self.tries, len(self._ends) - 1)]
        self.tries += 1
        self._wall.now_s += 3
        self.retries += end != "not opened"
        if end == "good":
            return
        raise Busy("stage 1 is held by another session") if end == "not opened" else Unavailable("stage 1 was lost")


class Watchless:
    """A watchdog that sees nothing."""

    def __init__(self, *_: object) -> None:
        """As a Watchdog's."""

    async def run(self) -> None:
        """See Watchdog."""
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("ends", "on", "tries"),
    [
        (["not opened"], False, 7),  # 7 x 3 s are the first beyond 20 s
        (["not opened"] * 6 + ["good"], True, 7),
        (["not opened"] * 7 + ["good"], False, 7),
        (["not opened"] * 6 + ["lost", "not opened"], False, 14),  # one that opened begins the time anew
        (["not opened"] * 5 + ["lost"] + ["not opened"] * 6 + ["good"], True, 13),
    ],
)
async def test_failed_openings_do_not_prolong_a_session_for_ever(
    ends: list[str], on: bool, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = Wall()
    session = Reopening(wall, *ends)
    for name, value in (("time", wall), ("_BACKOFF_S", (0.0,)), ("Watchdog", Watchless)):
        monkeypatch.setattr(supervisor, name, value)
    kept = supervised()
    async with asyncio.timeout(5):
        went_on = await kept._goes_on(cast(LiveSession, session), "", Unavailable("stage 1 was lost"))
    assert (went_on, session.tries) == (on, tries)
    assert (kept.reason == "") is on


async def test_what_no_waiting_mends_is_the_end_of_a_session() -> None:
    session = Reopening(Wall(), "good")
    kept = supervised()
    assert not await kept._goes_on(cast(LiveSession, session), "", ProtocolError("not a frame"))
    assert session.tries == 0
