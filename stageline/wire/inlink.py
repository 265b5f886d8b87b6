"""The downstream end of a link: frames in, asks back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from grpc import aio

from stageline.errors import ProtocolError, StagelineError, Unavailable
from stageline.v1 import flow_pb2 as pb
from stageline.wire.errors import abort
from stageline.wire.frames import FrameDecoder
from stageline.wire.host import Host

FlowContext = aio.ServicerContext[pb.FlowRequest, pb.FlowReply]


class InLink:
    """One incoming link of a party. `place` names the far end for people, `key` is the link's name in its party."""

    def __init__(self, party: Host, key: int, link: int, place: str) -> None:
        self.party, self.key, self.link, self.place = party, key, link, place
        self.decoder = FrameDecoder(link, f"link {link}")
        self.asks = 0
        self._ask_ns = 0
        self._wake: asyncio.Future[None] | None = None

    def attach(self) -> None:
        """Takes its place in the party. Raises ProtocolError when the link stands already."""
        if self.key in self.party.upstream:
            raise ProtocolError(f"link {self.link} is open already")
        self.party.upstream[self.key] = self

    def ask(self, time_ns: int) -> None:
        """Asks the sender for a promise up to a time."""
        self._ask_ns = max(self._ask_ns, time_ns)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def serve(self, context: FlowContext) -> None:
        """Until the session ends. Raises the session's error; a lost sender is one unless its last frame has come."""
        await context.write(pb.FlowReply(welcome=pb.Welcome()))
        reading = asyncio.create_task(self._read(context))
        asking = asyncio.create_task(self._write(context))
        try:
            either: set[asyncio.Future[Any]] = {reading, self.party.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not self.decoder.last:
                self.party.fail(self._lost())
            await self.party.over()
        except asyncio.CancelledError:
            if not self.decoder.last:
                self.party.fail(self._lost())
            raise
        finally:
            for task in (reading, asking):
                task.cancel()
            await asyncio.gather(reading, asking, return_exceptions=True)
        if self.party.error is not None:
            raise self.party.error

    def _lost(self) -> Unavailable:
        return Unavailable(f"{self.place} is gone: link {self.link} broke before its last frame")

    async def _read(self, context: FlowContext) -> None:
        decode, received, key = self.decoder.decode, self.party.received, self.key
        try:
            while isinstance(request := await context.read(), pb.FlowRequest):
                if request.HasField("frame"):
                    received(key, decode(request.frame))
                elif not request.HasField("padding"):
                    other = request.WhichOneof("message") or "nothing"
                    raise ProtocolError(f"link {self.link}: expected a frame, got {other}")
        except StagelineError as error:
            self.party.fail(error)

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
