"""What other commands are answered by a running `up`, over its socket; the servers are stubs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stageline.cluster import sockets
from stageline.cluster.control import ControlServer, controlled
from stageline.cluster.local_running import LocalRunning
from stageline.cluster.process import Child
from stageline.errors import RunFailed, StagelineError, Unavailable


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of this test's own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def cluster(*, started: bool, **parts: Any) -> Any:
    """What a ControlServer sees of a LocalCluster."""
    found = {name.replace("_", "-"): part for name, part in parts.items()}
    return SimpleNamespace(started=started, parts=lambda: found, stages=[])


@asynccontextmanager
async def answering(servers: Any) -> AsyncIterator[LocalRunning]:
    """A running `up`, as another command sees it."""
    with sockets.claimed("mine") as claim:
        async with controlled(claim.listener, ControlServer(servers, "mine", print, lambda: None)):
            yield LocalRunning("mine")


@pytest.mark.parametrize("verb", ["kill", "stop", "pause", "restart"])
async def test_nothing_is_done_to_a_cluster_that_starts(verb: str) -> None:
    """A part that ended now would end `up`."""
    stage = Child("stage 0", "stage_server", [])
    async with answering(cluster(started=False, stage_00=stage)) as running:
        for part in ("router", "stage-00"):
            with pytest.raises(StagelineError, match="'mine' is starting; try again in a moment"):
                await asyncio.to_thread(running.act, verb, part)
        (row,) = await asyncio.to_thread(running.rows)
        assert (row["part"], row["status"], row["pid"]) == ("stage-00", "starting", 0)
        with pytest.raises(StagelineError, match="is starting"):
            await asyncio.to_thread(lambda: list(running.logs("router", 1, follow=False)))


@pytest.mark.parametrize("error", [ValueError("no such thing"), OSError("no such thing")])
async def test_a_bug_is_answered_and_logged_and_the_next_call_is_served(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Child("stage 0", "stage_server", [])
    servers = cluster(started=True, stage_00=stage)

    async def fails(grace_s: float) -> None:
        raise error

    stage.restart = fails  # type: ignore[method-assign]
    async with answering(servers) as running:
        with pytest.raises(RunFailed, match=f"internal error: {type(error).__name__}: no such thing"):
            await asyncio.to_thread(running.act, "restart", "0")
        assert len(await asyncio.to_thread(running.rows)) == 1
    (record,) = caplog.records
    assert (record.levelno, record.exc_info is not None) == (logging.ERROR, True)


async def test_what_is_no_call_is_named() -> None:
    async with answering(cluster(started=True)):

        def ask(line: bytes) -> bytes:
            with sockets.reach("mine") as connection:
                connection.sendall(line)
                return connection.makefile("rb").read()

        assert b"not a call: Object contains unknown field" in await asyncio.to_thread(ask, b'{"verb":"rows","x":1}\n')
        assert b"not a call: " in await asyncio.to_thread(ask, b"x" * (1 << 17))


async def test_one_that_is_stopped_is_waited_for_in_vain_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stageline.cluster.local_running._ANSWER_S", 0.05)
    with sockets.claimed("mine"), pytest.raises(Unavailable, match=r"does not answer; .* stopped \(Ctrl-Z\)"):
        await asyncio.to_thread(LocalRunning("mine").rows)
