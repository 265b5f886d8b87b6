"""The sending end of a stream of KV between two stages, in payload modes `capped` and `full` (ReceiveKv).

gRPC's flow control bounds what is under way to a chunk and 64 KiB.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from grpc import aio

from stageline.errors import ProtocolError, RunFailed, Unavailable
from stageline.v1 import stage_pb2 as pb
from stageline.v1.stage_pb2_grpc import StageStub
from stageline.wire.channels import Dialer
from stageline.wire.errors import error_from
from stageline.wire.frames import CAPPED_BYTES, CHUNK_BYTES, PayloadMode

KvCall = aio.StreamStreamCall[pb.ReceiveKvRequest, pb.ReceiveKvReply]
_ZEROS = bytes(CHUNK_BYTES)


class Part(NamedTuple):
    """What one stage sends another of the KV of a request, in bytes of emulated time."""

    request: int
    kv_bytes: int


def really_sent(kv_bytes: int, mode: PayloadMode) -> int:
    """How many of a part's bytes travel."""
    return {"size": 0, "capped": min(kv_bytes, CAPPED_BYTES), "full": kv_bytes}[mode]


def chunks(part: Part, mode: PayloadMode) -> Iterator[pb.KvChunk]:
    """The messages of a part; at least one."""
    left = really_sent(part.kv_bytes, mode)
    while left > CHUNK_BYTES:
        yield pb.KvChunk(request=part.request, kv_bytes=part.kv_bytes, payload=_ZEROS)
        left -= CHUNK_BYTES
    yield pb.KvChunk(request=part.request, kv_bytes=part.kv_bytes, payload=_ZEROS[:left], last=True)


class KvOut:
    """Opens the stream with the first part, and keeps it. Parts are written one after the other."""

    def __init__(self, hello: pb.KvHello, receiver: pb.KvReceiver, mode: PayloadMode, dialer: Dialer) -> None:
        self._hello, self._mode = hello, mode
        self._place = f"{receiver.name} at {receiver.address}"
        self._channel = dialer.channel(receiver.address)
        self._call: KvCall | None = None
        self._turn = asyncio.Lock()

    async def send(self, parts: Sequence[Part]) -> None:
        """Return when all have landed. Raises RunFailed for a far end that is gone, ProtocolError for bytes that have
        not landed.
        """
        async with self._turn:
            opens = self._call is None
            call = self._call = self._call or self._open()
            writing = asyncio.create_task(self._write(call, parts, opens=opens))
            try:
                for part in parts:
                    self._check(part, await self._landed(call))
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    async def close(self) -> None:
        """Close the stream and the connection. Never raises. (Why the call is let go: see OutLink.)"""
        if self._call is not None:
            self._call.cancel()
        self._call = None
        await self._channel.close()

    def _open(self) -> KvCall:
        method: Callable[[], KvCall] = StageStub(self._channel).ReceiveKv
        return method()

    async def _write(self, call: KvCall, parts: Sequence[Part], *, opens: bool) -> None:
        try:
            if opens:
                await call.write(pb.ReceiveKvRequest(hello=self._hello))
            for part in parts:
                for chunk in chunks(part, self._mode):
                    await call.write(pb.ReceiveKvRequest(chunk=chunk))
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # `_landed` learns why

    async def _landed(self, call: KvCall) -> pb.ReceiveKvReply:
        try:
            reply: object = await call.read()
        except (aio.AioRpcError, asyncio.InvalidStateError):
            reply = None
        if isinstance(reply, pb.ReceiveKvReply):
            return reply
        error = aio.AioRpcError(
            await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
        )
        found = error_from(error, self._place)
        if isinstance(found, Unavailable):  # a link that breaks later must not hide this
            raise RunFailed(f"{self._hello.sender} can't send KV: {found}")
        raise found

    def _check(self, part: Part, landed: pb.ReceiveKvReply) -> None:
        if (landed.request, landed.landed_bytes) != part:
            raise ProtocolError(
                f"KV of request {part.request} from {self._hello.sender} to {self._place}: {part.kv_bytes} bytes were "
                f"sent, {landed.landed_bytes} of request {landed.request} landed"
            )
