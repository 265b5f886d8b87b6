"""The stage servers as the router knows them: a channel each, and whether they serve."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stageline.plan.schema import Plan
from stageline.runtime.names import stage_name
from stageline.v1 import stage_pb2
from stageline.v1.stage_pb2_grpc import StageStub
from stageline.wire import options

if TYPE_CHECKING:  # known to the type stubs only
    from stageline.v1.stage_pb2_grpc import StageAsyncStub

_RETRY_S = 0.5
_METRICS_S = 2.0


class RemoteStage:
    """One stage server. Its health is watched by a stream that says nothing while nothing changes."""

    def __init__(self, plan: Plan, replica: int, stage: int, address: str, changed: Callable[[], None]) -> None:
        self.replica, self.stage, self.address = replica, stage, address
        self.name = stage_name(plan, replica, stage)
        self.place = f"{self.name} at {address}"
        self.healthy = False
        self._changed = changed
        self._channel = aio.insecure_channel(address, options=options.CHANNEL)
        self.stub: StageAsyncStub = StageStub(self._channel)
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stops watching and closes the channel."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    async def _watch(self) -> None:
        stub = health_pb2_grpc.HealthStub(self._channel)
        while True:
            try:
                async for reply in stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True):  # type: ignore[attr-defined]
                    self._set(reply.status == health_pb2.HealthCheckResponse.SERVING)
            except aio.AioRpcError:
                pass  # gone; the next watch waits until it is back
            self._set(False)
            await asyncio.sleep(_RETRY_S)

    def _set(self, healthy: bool) -> None:
        if healthy != self.healthy:
            self.healthy = healthy
            self._changed()


class StageTable:
    """All stages, by replica and stage. `changed` is called when the health of one changes."""

    def __init__(self, plan: Plan, addresses: list[list[str]], changed: Callable[[], None]) -> None:
        self.rows = [
            [RemoteStage(plan, r, s, address, changed) for s, address in enumerate(row)]
            for r, row in enumerate(addresses)
        ]

    def __iter__(self) -> Iterator[RemoteStage]:
        return (stage for row in self.rows for stage in row)

    @property
    def healthy(self) -> bool:
        """Whether every stage serves."""
        return all(stage.healthy for stage in self)

    async def close(self) -> None:
        """Closes all channels."""
        await asyncio.gather(*(stage.close() for stage in self))


async def metrics_of(table: Iterable[RemoteStage]) -> dict[tuple[int, int], bytes]:
    """What every healthy stage tells Prometheus, by (replica, stage); those that do not answer are left out."""

    async def ask(stage: RemoteStage) -> tuple[tuple[int, int], bytes]:
        request = stage_pb2.DescribeRequest(metrics=True)
        try:
            reply = await stage.stub.Describe(request, timeout=_METRICS_S)
        except aio.AioRpcError:
            return (stage.replica, stage.stage), b""
        return (stage.replica, stage.stage), reply.metrics

    return dict(await asyncio.gather(*(ask(stage) for stage in table if stage.healthy)))
