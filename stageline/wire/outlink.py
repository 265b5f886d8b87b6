"""The upstream end of a link: one long-lived stream, frames out, asks back."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import grpc
from grpc import aio

from stageline.errors import ProtocolError, StagelineError, Unavailable
from stageline.sync.frames import Frame
from stageline.v1 import flow_pb2 as pb
from stageline.v1.router_pb2_grpc import RouterStub
from stageline.v1.stage_pb2_grpc import StageStub
from stageline.wire import grpc_options
from stageline.wire.channels import Dialer
from stageline.wire.errors import error_from
from stageline.wire.frames import FrameEncoder
from stageline.wire.link_owner import LinkOwner

_REASON_S = 1.0
FlowCall = aio.StreamStreamCall[pb.FlowRequest, pb.FlowReply]


class Peer(NamedTuple):
    """The far end of an outgoing link; `place` names it for people."""

    address: str
    place: str
    is_router: bool = False


def merged(queue: deque[Frame]) -> Frame:
    """Take the next frame to send off the queue: all that wait in one, except that a last frame, and one that announces
    releases, stands alone: no other can say that.
    """
    first = queue.popleft()
    if not queue or _stands_alone(first) or _stands_alone(queue[0]):
        return first
    items = list(first.items)
    frame = first
    while queue and not _stands_alone(queue[0]):
        frame = queue.popleft()
        items += frame.items
    return Frame(items, frame.promise_ns, slip_ns=frame.slip_ns)


def _stands_alone(frame: Frame) -> bool:
    return frame.last or bool(frame.releases)


class OutLink:
    """Writes one frame at a time, and merges those that come meanwhile. No frame is written before `open`.

    `key` is the link's name to its owner, `place` names the far end for people.
    """

    def __init__(
        self, owner: LinkOwner, key: int, hello: pb.Hello, *, to: Peer, encoder: FrameEncoder, dialer: Dialer
    ) -> None:
        self._owner, self._key, self._hello, self._to = owner, key, hello, to
        self.place = to.place
        self.encoder = encoder
        self._channel = dialer.channel(to.address)
        self._call: FlowCall | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._queue: deque[Frame] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._last = False
        owner.attach_downstream(key, self)

    async def open(self) -> None:
        """Connect, say hello and wait for the welcome. Raises StagelineError, Unavailable after the deadline."""
        error = await self._try_open()
        if error is not None:
            raise error

    def push(self, frame: Frame) -> None:
        """Send a frame as soon as the one before it is out."""
        self._queue.append(frame)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def close(self) -> None:
        """Close the stream and the connection. Never raises.

        gRPC keeps a closed channel's connection open for as long as a call of it is referenced, even one that has
        ended. A session is a cycle of references, which Python collects late: so nothing that is kept, not the frames
        in an error's traceback either, may hold the call.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._call is not None:
            self._call.cancel()
        self._call = None
        self._tasks.clear()
        await self._channel.close()

    async def _try_open(self) -> StagelineError | None:
        """Open it, as `open` says; why that failed, if it did."""
        stub = RouterStub(self._channel) if self._to.is_router else StageStub(self._channel)
        method: Callable[..., FlowCall] = stub.Flow
        call = self._call = method(wait_for_ready=True)
        try:
            async with asyncio.timeout(grpc_options.CONNECT_S):
                await call.write(pb.FlowRequest(hello=self._hello))
                reply = await call.read()
        except TimeoutError:
            return await self._silence(method)
        except (aio.AioRpcError, asyncio.InvalidStateError):
            return await self._why(call)
        if not isinstance(reply, pb.FlowReply) or reply.WhichOneof("message") != "welcome":
            return ProtocolError(f"{self.place} did not welcome link {self._hello.link}")
        self._tasks = [asyncio.create_task(self._write(call)), asyncio.create_task(self._read(call))]
        return None

    async def _write(self, call: FlowCall) -> None:
        loop = asyncio.get_running_loop()
        encode, write, queue = self.encoder.encode, call.write, self._queue
        try:
            while not self._last:
                if not queue:
                    self._wake = loop.create_future()
                    await self._wake
                    continue
                frame = merged(queue) if len(queue) > 1 else queue.popleft()
                for message in encode(frame):
                    await write(message)
                self._last = frame.last
            await call.done_writing()
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # `_read` learns why
        except ValueError as error:
            self._owner.fail(StagelineError(f"link {self._hello.link}: a value does not fit the wire: {error}"))

    async def _read(self, call: FlowCall) -> None:
        try:
            while isinstance(reply := await call.read(), pb.FlowReply):
                if reply.WhichOneof("message") != "ask":
                    self._owner.fail(ProtocolError(f"{self.place} sent something that is not an ask"))
                    return
                self._owner.asked(self._key, reply.ask.time_ns)
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass
        if not self._last or await call.code() != grpc.StatusCode.OK:
            self._owner.fail(await self._why(call))

    async def _silence(self, method: Callable[..., FlowCall]) -> StagelineError:
        """Why nobody answers: gRPC tells a call that does not wait for its connection why there is none."""
        call = method()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REASON_S):
                return await self._why(call)
        call.cancel()
        return Unavailable(f"{self.place} did not answer within {grpc_options.CONNECT_S:g} s; is it running?")

    async def _why(self, call: FlowCall) -> StagelineError:
        """What ended the stream."""
        error = aio.AioRpcError(
            await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
        )
        return error_from(error, self.place)
