"""KV of hand-overs, in payload modes `capped` and `full`: the router orders stages to send it, and checks what landed.

Emulated time knows nothing of it: the router has computed the transfer before the first byte leaves.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from router.cluster.stages import RemoteStage, StageTable
from stageline.engine.kv_shares import KvShares
from stageline.engine.ports import Transfer
from stageline.errors import ProtocolError, StagelineError
from stageline.runtime.calls import answer
from stageline.runtime.shell import SessionShell
from stageline.v1 import stage_pb2
from stageline.wire import grpc_options
from stageline.wire.errors import locate

_PARTS = 1024  # in one order at most
Place = tuple[int, int]  # replica, stage


class _Part(NamedTuple):
    request: int
    to: Place
    kv_bytes: int


class KvOrders:
    """The orders of one session: for each stage one after the other, each with all that was booked meanwhile."""

    def __init__(self, session: str, table: StageTable, shell: SessionShell) -> None:
        self._session, self._table, self._shell = session, table, shell
        self._waiting: dict[Place, deque[_Part]] = {}  # also those whose order is under way have an entry
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent: Counter[Place] = Counter()  # booked bytes by the stage that sends them
        self._landed: Counter[Place] = Counter()  # by the stage that takes them
        self._shares = cache(self._shares_of)

    def booked(self, transfer: Transfer) -> None:
        """A transfer was booked: its stages send their KV as soon as they can."""
        shares = self._shares(transfer.source, transfer.destination)
        for stage, stage_bytes in enumerate(transfer.stage_bytes):
            source = transfer.source, stage
            for target, kv_bytes in shares.split(stage, stage_bytes):
                self._add(source, _Part(transfer.request, (transfer.destination, target), kv_bytes))

    async def settled(self) -> None:
        """Return when all that was booked has landed, or the session has failed. Raises Unavailable for a stage that
        hangs.
        """
        while self._tasks and not self._shell.ended.done():
            either: set[asyncio.Future[Any]] = {*self._tasks, self._shell.ended}
            done, _ = await asyncio.wait(either, timeout=grpc_options.CALL_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                request = stage_pb2.DescribeRequest()
                alive = (answer(s.stub.Describe(request, timeout=grpc_options.CALL_S), s.place) for s in self._table)
                await asyncio.gather(*alive)

    def check(self, snapshots: Iterable[stage_pb2.SnapshotReply]) -> None:
        """Compare what all stages, in the order of the table, have counted with what was booked. Or ProtocolError."""
        for stage, found in zip(self._table, snapshots, strict=True):
            place = stage.replica, stage.stage
            booked, counted = (self._sent[place], self._landed[place]), (found.kv_sent_bytes, found.kv_landed_bytes)
            if booked != counted:
                raise ProtocolError(
                    f"KV of hand-overs at {stage.name}: {booked[0]} bytes were to leave, {counted[0]} have left; "
                    f"{booked[1]} were to land, {counted[1]} have landed"
                )

    async def close(self) -> None:
        """Order nothing more. Never raises."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _shares_of(self, source: int, destination: int) -> KvShares:
        deployment = self._table.deployment
        return KvShares(deployment.plan(source), deployment.plan(destination))

    def _add(self, source: Place, part: _Part) -> None:
        self._sent[source] += part.kv_bytes
        self._landed[part.to] += part.kv_bytes
        if source in self._waiting:
            self._waiting[source].append(part)
            return
        self._waiting[source] = deque([part])
        task = asyncio.create_task(self._order(source))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stage(self, place: Place) -> RemoteStage:
        replica, stage = place
        return self._table.rows[replica][stage]

    async def _order(self, source: Place) -> None:
        """Have a stage send all that waits for it."""
        stage, waiting = self._stage(source), self._waiting[source]
        try:
            while waiting:
                parts = [waiting.popleft() for _ in range(min(len(waiting), _PARTS))]
                reply = await answer(stage.stub.SendKv(self._request(parts)), stage.place)
                self._compare(stage, parts, reply.landed_bytes)
            del self._waiting[source]
        except StagelineError as error:
            self._shell.fail(locate(error, stage.name))

    def _request(self, parts: list[_Part]) -> stage_pb2.SendKvRequest:
        number = {to: i for i, to in enumerate(dict.fromkeys(part.to for part in parts))}
        receivers = [
            stage_pb2.KvReceiver(replica=s.replica, stage=s.stage, address=s.address, name=s.name)
            for s in map(self._stage, number)
        ]
        return stage_pb2.SendKvRequest(
            session=self._session, receiver=receivers, request=[part.request for part in parts],
            to=[number[part.to] for part in parts], kv_bytes=[part.kv_bytes for part in parts],
        )  # fmt: skip

    def _compare(self, stage: RemoteStage, parts: list[_Part], landed: Sequence[int]) -> None:
        if len(landed) != len(parts):
            raise ProtocolError(f"{stage.name} was to send {len(parts)} parts of KV, and tells of {len(landed)}")
        for part, landed_bytes in zip(parts, landed, strict=True):
            if landed_bytes != part.kv_bytes:
                raise ProtocolError(
                    f"KV of request {part.request} from {stage.name} to {self._stage(part.to).name}: "
                    f"{part.kv_bytes} bytes were booked, {landed_bytes} landed"
                )
