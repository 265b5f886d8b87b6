"""What other commands may ask of a cluster of local processes while `stageline up` runs, over its socket.

One call per connection, as a line of JSON; the answer is lines of JSON until the connection closes.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec

from stageline.cluster.containers import ROUTER
from stageline.cluster.local import GRACE_S, LocalCluster
from stageline.cluster.parts import DONE, find_part
from stageline.cluster.process import Child
from stageline.errors import StagelineError, Unavailable, UsageError

log = logging.getLogger(__name__)
_CALL_BYTES = 1 << 16
_DOWN = ("exited", "restarting")


class ControlCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What another command asks for: one of `parts.DONE` for a part, or `rows`, `logs` or `down`."""

    verb: str
    part: str = ""
    tail: int = 0
    follow: bool = False


class PartState(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it is now."""

    part: str
    status: str
    restarts: int
    pid: int
    grpc: str
    metrics: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an answer: what was done, a server, a line of its log, or what is wrong and the exit code for it."""

    part: str = ""
    line: str | None = None
    state: PartState | None = None
    error: str = ""
    exit_code: int = 0


class ControlServer:
    """Carries out calls on the servers of a cluster. `down` ends `stageline up`, as Ctrl-C does."""

    def __init__(self, cluster: LocalCluster, name: str, say: Callable[[str], None], down: Callable[[], None]) -> None:
        self._cluster, self._name, self._say, self._down = cluster, name, say, down

    async def answer(self, call: ControlCall) -> AsyncIterator[Answer]:
        """Carries out one call. Raises UsageError for one that can't be, Unavailable while the cluster starts."""
        if call.verb == "rows":
            for part, child in self._cluster.parts().items():
                yield Answer(state=_state(part, child))
        elif call.verb == "logs":
            async for answer in self._logs(call):
                yield answer
        elif call.verb == "down":
            yield Answer(line=f"{len(self._cluster.stages) + 1} processes")
            self._down()
            await asyncio.get_running_loop().create_future()  # the connection closes with the cluster
        elif call.verb in DONE:
            if not self._cluster.started:
                raise self._starting()
            part, child = self._find(call.part)
            await self._act(call.verb, part, child)
            yield Answer(part=part)
        else:
            raise UsageError(
                f"{call.verb}: this cluster, of another version, does not know that; end it and start it again"
            )

    def _find(self, part: str) -> tuple[str, Child]:
        """A part's full name and its server. Raises UsageError, or Unavailable for a router that is yet to come."""
        parts = self._cluster.parts()
        if part == ROUTER and part not in parts:
            raise self._starting()
        name = find_part(part, parts, self._name)
        return name, parts[name]

    def _starting(self) -> Unavailable:
        return Unavailable(f"cluster {self._name!r} is starting; try again in a moment")

    async def _act(self, verb: str, part: str, child: Child) -> None:
        if verb in ("connect", "disconnect"):
            raise UsageError(f"{verb} needs containers: local processes share this host's network; try pause or kill")
        if verb == "restart":
            await child.restart(GRACE_S)
            return
        if child.status in _DOWN:
            raise UsageError(f"{part} is down; start it with stageline cluster restart {part}")
        if verb in ("kill", "stop"):
            await child.hold_down(GRACE_S if verb == "stop" else 0)
            self._say(f"{part} was {DONE[verb]} on request and stays down until stageline cluster restart {part}")
            return
        paused = child.status == "paused"
        if paused == (verb == "pause"):
            raise UsageError(f"{part} is {'already' if paused else 'not'} paused")
        (child.pause if verb == "pause" else child.resume)()

    async def _logs(self, call: ControlCall) -> AsyncIterator[Answer]:
        for part, child in (dict([self._find(call.part)]) if call.part else self._cluster.parts()).items():
            if child.log is None:
                continue
            for line in child.log.tail(call.tail):
                yield Answer(part=part, line=line)
            if call.follow:
                async for line in child.log.follow():
                    yield Answer(part=part, line=line)


@contextlib.asynccontextmanager
async def controlled(listener: socket.socket, control: ControlServer) -> AsyncIterator[None]:
    """Takes calls on a socket inside it."""
    under_way: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_converse(reader, writer, control))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    server = await asyncio.start_unix_server(accept, sock=listener, limit=_CALL_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in tuple(under_way):
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, control: ControlServer) -> None:
    """One connection: a call and its answer. Who follows a log is let go when the other side closes."""
    try:
        with contextlib.suppress(OSError):  # the other side is gone
            async with contextlib.aclosing(_answers(reader, control)) as answers:
                async for answer in answers:
                    writer.write(msgspec.json.encode(answer) + b"\n")
                    await writer.drain()
    finally:
        writer.close()


async def _answers(reader: asyncio.StreamReader, control: ControlServer) -> AsyncGenerator[Answer, None]:
    """What a call gives, or what is wrong with it, or with this process."""
    try:
        line = await reader.readline()
        if not line:
            return  # whoever looks for names connects and says nothing
        call = msgspec.json.decode(line, type=ControlCall)
    except ValueError as error:  # also msgspec's, and that of a line without end
        yield Answer(error=f"not a call: {error}", exit_code=1)
        return
    if call.follow:
        _cancel_at_end(reader)
    try:
        async for answer in control.answer(call):
            yield answer
    except StagelineError as error:
        yield Answer(error=str(error), exit_code=error.exit_code)
    except Exception as error:
        log.exception("internal error in a call of another command", extra={"verb": call.verb, "part": call.part})
        yield Answer(error=f"internal error: {type(error).__name__}: {error}", exit_code=1)


def _cancel_at_end(reader: asyncio.StreamReader) -> None:
    """Cancels this task when the other side closes its connection."""
    this = asyncio.current_task()
    assert this is not None
    end = asyncio.create_task(reader.read())
    end.add_done_callback(lambda _: this.cancel())
    this.add_done_callback(lambda _: end.cancel())


def _state(part: str, child: Child) -> PartState:
    at = child.endpoints
    return PartState(
        part=part,
        status=child.status,
        restarts=child.restarts,
        pid=child.pid if child.status not in _DOWN and child.pid else 0,
        grpc=at.grpc if at else "",
        metrics=at.metrics if at else "",
    )
