"""Who is blamed for the end of a session: neighbours notice the loss of a stage, too, and often before the router."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from router.cluster import connections
from router.cluster.connections import StageConnections
from stageline.errors import RunFailed, StagelineError, Unavailable
from stageline.wire.errors import LocatedError


def failed(error: StagelineError, party: str) -> StageConnections:
    """Connections of a session that was under way and failed with the first report that came."""
    found: Any = StageConnections.__new__(StageConnections)
    found._shell = SimpleNamespace(error=LocatedError(error, party), fail=lambda error: None)
    found._lost, found._causes, found._blamed, found.started = [], [], asyncio.Event(), True
    return found  # type: ignore[no-any-return]


async def test_the_stage_that_was_lost_is_waited_for() -> None:
    session = failed(Unavailable("stage 0 can't be reached (Internal error from Core)"), "the router")
    failure = asyncio.ensure_future(session.failure())
    done, _ = await asyncio.wait({failure}, timeout=0)
    assert not done
    session.lose(LocatedError(Unavailable("stage 1 was lost during the run"), "stage 1"))
    found = await failure
    assert isinstance(found, LocatedError)
    assert (type(found.error), str(found), found.party) == (RunFailed, "stage 1 was lost during the run", "stage 1")


async def test_if_none_was_lost_the_first_report_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_BLAME_S", 0.01)
    found = await failed(Unavailable("stage 2 is gone: link 3 broke"), "the router").failure()
    assert str(found) == "stage 2 is gone: link 3 broke"


async def test_an_error_of_a_stage_that_is_there_is_not_doubted() -> None:
    found = await asyncio.wait_for(failed(StagelineError("a law is broken"), "stage 2").failure(), 0.1)
    assert str(found) == "a law is broken"
