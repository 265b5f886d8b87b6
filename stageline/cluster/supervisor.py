"""What other commands may ask of a cluster of local processes while `stageline up` runs, over its socket.

One order per connection, as a line of JSON; the answer is lines of JSON until the connection closes.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import msgspec

from stageline.cluster.local import LocalCluster
from stageline.cluster.parts import DONE, find_part
from stageline.cluster.process import Child
from stageline.errors import StagelineError, UsageError

_GRACE_S = 8.0
_ORDER_BYTES = 1 << 16
_DOWN = ("exited", "restarting")


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `parts.DONE` for a part, or `rows`, `logs` or `down`."""

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


class Supervisor:
    """Carries out orders on the servers of a cluster. `down` ends `stageline up`, as Ctrl-C does."""

    def __init__(self, cluster: LocalCluster, name: str, say: Callable[[str], None], down: Callable[[], None]) -> None:
        self._cluster, self._name, self._say, self._down = cluster, name, say, down

    async def obey(self, order: Order) -> AsyncIterator[Answer]:
        """Carries out one order. Raises UsageError for one that can't be, Unavailable while the cluster starts."""
        if order.verb == "rows":
            for part, child in self._cluster.parts().items():
                yield Answer(state=_state(part, child))
        elif order.verb == "logs":
            async for answer in self._logs(order):
                yield answer
        elif order.verb == "down":
            yield Answer(line=f"{len(self._cluster.stages) + 1} processes")
            self._down()
            await asyncio.get_running_loop().create_future()  # the connection closes with the cluster
        elif order.verb in DONE:
            parts = self._cluster.parts()
            part = find_part(order.part, parts, self._name)
            await self._act(order.verb, part, parts[part])
            yield Answer(part=part)
        else:
            raise UsageError(f"{order.verb}: this cluster does not know that order; end it and start it again")

    async def _act(self, verb: str, part: str, child: Child) -> None:
        if verb in ("connect", "disconnect"):
            raise UsageError(f"{verb} needs containers: local processes share this host's network; try pause or kill")
        if verb == "restart":
            await child.restart(_GRACE_S)
            return
        if child.status in _DOWN:
            raise UsageError(f"{part} is down; start it with stageline cluster restart {part}")
        if verb in ("kill", "stop"):
            await child.hold_down(_GRACE_S if verb == "stop" else 0)
            self._say(f"{part} was {DONE[verb]} on request and stays down until stageline cluster restart {part}")
            return
        paused = child.status == "paused"
        if paused == (verb == "pause"):
            raise UsageError(f"{part} is {'already' if paused else 'not'} paused")
        (child.pause if verb == "pause" else child.resume)()

    async def _logs(self, order: Order) -> AsyncIterator[Answer]:
        parts = self._cluster.parts()
        chosen = find_part(order.part, parts, self._name) if order.part else ""
        for part, child in parts.items():
            if child.log is None or chosen not in ("", part):
                continue
            for line in child.log.tail(order.tail):
                yield Answer(part=part, line=line)
            if order.follow:
                async for line in child.log.follow():
                    yield Answer(part=part, line=line)


@contextlib.asynccontextmanager
async def supervised(listener: socket.socket, supervisor: Supervisor) -> AsyncIterator[None]:
    """Takes orders on a socket inside it."""
    under_way: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_converse(reader, writer, supervisor))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    server = await asyncio.start_unix_server(accept, sock=listener, limit=_ORDER_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in tuple(under_way):
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, supervisor: Supervisor) -> None:
    """One connection: an order and its answer. Who follows a log is let go when the other side closes."""
    with contextlib.suppress(OSError):  # the other side is gone
        try:
            order = msgspec.json.decode(await reader.readline(), type=Order)
            if order.follow:
                _cancel_at_end(reader)
            async for said in supervisor.obey(order):
                writer.write(msgspec.json.encode(said) + b"\n")
                await writer.drain()
        except (msgspec.MsgspecError, ValueError) as error:
            writer.write(msgspec.json.encode(Answer(error=f"not an order: {error}", exit_code=1)) + b"\n")
        except StagelineError as error:
            writer.write(msgspec.json.encode(Answer(error=str(error), exit_code=error.exit_code)) + b"\n")
        finally:
            writer.close()


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
