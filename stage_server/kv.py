"""KV of hand-overs at one stage, in payload modes `capped` and `full`: what it sends, and what lands."""

import asyncio
from typing import Any

from stageline.errors import ProtocolError, StagelineError, Unavailable
from stageline.runtime.shell import SessionShell
from stageline.v1 import stage_pb2 as pb
from stageline.wire.channels import Dialer
from stageline.wire.frames import PayloadMode
from stageline.wire.kv_in import KvDecoder, KvIn
from stageline.wire.kv_out import KvOut, Part

Place = tuple[int, int]  # replica, stage


class KvStreams:
    """The streams of one session. `sent_bytes` and `landed_bytes` count bytes of emulated time that have landed."""

    def __init__(self, session: str, own: Place, shell: SessionShell, mode: PayloadMode, dialer: Dialer) -> None:
        self._session, self._own, self._shell, self._mode, self._dialer = session, own, shell, mode, dialer
        self._out: dict[Place, KvOut] = {}
        self.sent_bytes = self.landed_bytes = 0

    async def send(self, order: pb.SendKvRequest) -> pb.SendKvReply:
        """Return when all that is ordered has landed. Raises StagelineError, and the session ends with it."""
        if not len(order.request) == len(order.to) == len(order.kv_bytes):
            raise ProtocolError("the columns request, to and kv_bytes of an order to send KV differ in length")
        if order.to and max(order.to) >= len(order.receiver):
            raise ProtocolError(f"an order to send KV names receiver {max(order.to)} of {len(order.receiver)}")
        sending = asyncio.create_task(self._send_all(order))
        either: set[asyncio.Future[Any]] = {sending, self._shell.ended}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise self._shell.error or Unavailable(f"the session at {self._shell.name} has ended")
            await sending
        except StagelineError as error:
            self._shell.fail(error)
            raise
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return pb.SendKvReply(landed_bytes=order.kv_bytes)

    def receive(self, hello: pb.KvHello) -> KvIn:
        """A stream that comes in. Raises ProtocolError when it was meant for another stage."""
        if (hello.replica, hello.stage) != self._own:
            raise ProtocolError(
                f"{self._shell.name} got the KV of {hello.sender} for stage {hello.stage} of replica {hello.replica}"
            )
        return KvIn(self._shell, KvDecoder(hello.sender, self._shell.name, self._mode), self._landed)

    async def close(self) -> None:
        """Close all streams. Never raises."""
        await asyncio.gather(*(stream.close() for stream in self._out.values()), return_exceptions=True)

    def _landed(self, kv_bytes: int) -> None:
        self.landed_bytes += kv_bytes

    async def _send_all(self, order: pb.SendKvRequest) -> None:
        """To all receivers at once."""
        parts: list[list[Part]] = [[] for _ in order.receiver]
        for request, to, kv_bytes in zip(order.request, order.to, order.kv_bytes, strict=True):
            parts[to].append(Part(request, kv_bytes))
        failed: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for receiver, mine in zip(order.receiver, parts, strict=True):
                    group.create_task(self._send(receiver, mine))
        except* StagelineError as errors:
            failed = errors.exceptions[0]
        if failed is not None:
            raise failed

    async def _send(self, receiver: pb.KvReceiver, parts: list[Part]) -> None:
        place = receiver.replica, receiver.stage
        if place not in self._out:
            hello = pb.KvHello(
                session=self._session, replica=receiver.replica, stage=receiver.stage, sender=self._shell.name
            )
            self._out[place] = KvOut(hello, receiver, self._mode, self._dialer)
        await self._out[place].send(parts)
        self.sent_bytes += sum(part.kv_bytes for part in parts)
