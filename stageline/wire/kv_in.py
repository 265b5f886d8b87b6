"""The receiving end of a stream of KV between two stages: it counts and discards the bytes (ReceiveKv)."""

import asyncio
from collections.abc import Callable
from typing import Any

from grpc import aio

from stageline.errors import ProtocolError, StagelineError
from stageline.v1 import stage_pb2 as pb
from stageline.wire.errors import abort
from stageline.wire.frames import PayloadMode
from stageline.wire.kv_out import Part, really_sent
from stageline.wire.link_owner import LinkOwner

KvContext = aio.ServicerContext[pb.ReceiveKvRequest, pb.ReceiveKvReply]


class KvDecoder:
    """Checks the chunks of one stream. `sender` and `place` name its ends for people."""

    def __init__(self, sender: str, place: str, mode: PayloadMode) -> None:
        self._sender, self._place, self._mode = sender, place, mode
        self._part: Part | None = None  # of which chunks are still to come
        self._came_bytes = 0

    def chunk(self, chunk: pb.KvChunk) -> Part | None:
        """The part that has landed with this chunk, if it was the last one. Raises ProtocolError, which names request,
        stages and bytes, for chunks that do not make up their part.
        """
        part = Part(chunk.request, chunk.kv_bytes)
        if self._part not in (None, part):
            raise self._wrong(self._part, f"a chunk of request {part.request} ({part.kv_bytes} bytes) came in between")
        self._part = part
        self._came_bytes += len(chunk.payload)
        wanted = really_sent(part.kv_bytes, self._mode)
        if self._came_bytes > wanted or (chunk.last and self._came_bytes < wanted):
            raise self._wrong(part, f"{self._came_bytes} bytes came instead of {wanted} (payload mode {self._mode})")
        if not chunk.last:
            return None
        self._part, self._came_bytes = None, 0
        return part

    def _wrong(self, part: Part | None, reason: str) -> ProtocolError:
        assert part is not None
        return ProtocolError(
            f"KV of request {part.request}, {part.kv_bytes} bytes from {self._sender} to {self._place}: {reason}"
        )


class KvIn:
    """One stream. `landed` is called with the bytes of every part, before its sender knows."""

    def __init__(self, owner: LinkOwner, decoder: KvDecoder, landed: Callable[[int], None]) -> None:
        self._owner, self._decoder, self._count = owner, decoder, landed

    async def serve(self, context: KvContext) -> None:
        """Return when the session or the stream ends. Raises the session's error.

        A stream that ends is no error here: the router misses a sender that is gone, and one that was cut off says so.
        """
        reading = asyncio.create_task(self._read(context))
        try:
            either: set[asyncio.Future[Any]] = {reading, self._owner.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if self._owner.error is not None:
            raise self._owner.error

    async def _read(self, context: KvContext) -> None:
        try:
            while isinstance(request := await context.read(), pb.ReceiveKvRequest):
                if request.WhichOneof("message") != "chunk":
                    raise ProtocolError(f"expected a chunk of KV, got {request.WhichOneof('message') or 'nothing'}")
                part = self._decoder.chunk(request.chunk)
                if part is not None:
                    self._count(part.kv_bytes)
                    await context.write(pb.ReceiveKvReply(request=part.request, landed_bytes=part.kv_bytes))
        except StagelineError as error:
            self._owner.fail(error)


async def serve_kv(context: KvContext, stream_of: Callable[[pb.KvHello], KvIn]) -> None:
    """The ReceiveKv RPC; `stream_of` finds the session or raises."""
    try:
        request = await context.read()
        if not isinstance(request, pb.ReceiveKvRequest) or request.WhichOneof("message") != "hello":
            raise ProtocolError("the first message of a stream of KV is its hello")
        await stream_of(request.hello).serve(context)
    except StagelineError as error:
        await abort(context, error)
