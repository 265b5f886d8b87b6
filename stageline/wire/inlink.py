"""The downstream end of a link: frames in, asks back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from grpc import aio

from stageline.errors import ProtocolError, StagelineError, Unavailable
from stageline.v1 import flow_pb2 as pb
from stageline.wire.errors import abort
from stageline.wire.frames import FrameDecoder
from stageline.wire.link_owner import LinkOwner

FlowContext = aio.ServicerContext[pb.FlowRequest, pb.FlowReply]


class InLink:
    """One incoming link of a session. `place` names the far end for people, `key` is the link's name to its owner."""

    def __init__(self, owner: LinkOwner, key: int, link: int, place: str) -> None:
        self.owner, self.key, self.link, self.place = owner, key, link, place
        self.decoder = FrameDecoder(f"link {link}")
        self.asks = 0
        self._attached = False
        self._ask_ns = 0
        self._wake: asyncio.Future[None] | None = None

    def attach(self) -> None:
        """Report the link open to its owner. Raises ProtocolError when it is open already."""
        if self._attached:
            raise ProtocolError(f"link {self.link} is open already")
        self._attached = True
        self.owner.attach_upstream(self.key, self)

    def ask(self, time_ns: int) -> None:
        """Ask the sender for a promise up to a time."""
        self._ask_ns = max(self._ask_ns, time_ns)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def serve(self, context: FlowContext) -> None:
        """Return when the session ends. Raises its error; losing the sender before its last frame is one."""
        owner = self.owner
        await context.write(pb.FlowReply(welcome=pb.Welcome()))
        reading = asyncio.create_task(self._read(context))
        asking = asyncio.create_task(self._write(context))
        try:
            either: set[asyncio.Future[Any]] = {reading, owner.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not self.decoder.last:
                owner.fail(self._lost())
            await owner.over()
        except asyncio.CancelledError:
            if not self.decoder.last:
                owner.fail(self._lost())
            raise
        finally:
            for task in (reading, asking):
                task.cancel()
            await asyncio.gather(reading, asking, return_exceptions=True)
        if owner.error is not None:
            raise owner.error

    def _lost(self) -> Unavailable:
        return Unavailable(f"{self.place} is gone: link {self.link} broke before its last frame")

    async def _read(self, context: FlowContext) -> None:
        decode, received, key = self.decoder.decode, self.owner.received, self.key
        try:
            while isinstance(request := await context.read(), pb.FlowRequest):
                if request.HasField("frame"):
                    received(key, decode(request.frame))
                elif not request.HasField("padding"):
                    other = request.WhichOneof("message") or "nothing"
                    raise ProtocolError(f"link {self.link}: expected a frame, got {other}")
        except StagelineError as error:
            self.owner.fail(error)

    async def _write(self, context: FlowContext) -> None:
        sent_ns = 0
        loop = asyncio.get_running_loop()
        while True:
            if self._ask_ns <= sent_ns:
                self._wake = loop.create_future()
                await self._wake
                continue
            sent_ns = self._ask_ns
            self.asks += 1
            await context.write(pb.FlowReply(ask=pb.Ask(time_ns=sent_ns)))


async def serve_flow(context: FlowContext, link_of: Callable[[pb.Hello], Awaitable[InLink]]) -> None:
    """The Flow RPC of both services; `link_of` finds the session or raises."""
    try:
        request = await context.read()
        if not isinstance(request, pb.FlowRequest) or request.WhichOneof("message") != "hello":
            raise ProtocolError("the first message on a link is its hello")
        link = await link_of(request.hello)
        link.attach()
        await link.serve(context)
    except StagelineError as error:
        await abort(context, error)
