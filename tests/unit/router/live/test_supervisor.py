"""The supervisor of live sessions says so when it can't go on."""

import asyncio
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from router.cluster.stages import StageTable
from router.live import supervisor
from router.live.options import LiveOptions
from stageline.errors import Unavailable
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
