"""The stage servers as the router sees them: a channel each, and whether they serve."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stageline.errors import StagelineError, Unauthenticated
from stageline.runtime.deployment import Deployment
from stageline.runtime.names import stage_name
from stageline.v1 import stage_pb2
from stageline.v1.stage_pb2_grpc import StageStub
from stageline.wire.channels import Dialer
from stageline.wire.errors import error_from

if TYPE_CHECKING:  # known to the type stubs only
    from stageline.v1.stage_pb2_grpc import StageAsyncStub

log = logging.getLogger(__name__)
_RETRY_S = 0.5
_METRICS_S = 2.0


class RemoteStage:
    """One stage server. Its health is watched by a stream that is silent while nothing changes.

    `trouble` is why it can't be reached, where waiting does not help.
    """

    def __init__(self, deployment: Deployment, replica: int, stage: int, address: str, dialer: Dialer) -> None:
        self.replica, self.stage, self.address = replica, stage, address
        self.pool = deployment.pool(replica)
        self.plan, self.plan_digest = deployment.plan(replica), deployment.plan_digest(replica)
        self.name = stage_name(self.plan, stage, deployment.replica_name(replica))
        self.place = f"{self.name} at {address}"
        self.lost = False  # it hangs: its connection stands, and it does not answer
        self._serving = False
        self._changed: Callable[[], None] = lambda: None
        self._search: asyncio.Task[None] | None = None
        self.trouble: Unauthenticated | None = None
        self._dialer = dialer
        self._dial()

    def _dial(self) -> None:
        self._channel, self._generation = self._dialer.channel(self.address), self._dialer.generation
        self.stub: StageAsyncStub = StageStub(self._channel)

    @property
    def healthy(self) -> bool:
        """Whether it serves, as far as is known."""
        return self._serving and not self.lost

    async def answers(self) -> None:
        """Return when the stage has answered, or its connection has broken."""
        with contextlib.suppress(aio.AioRpcError):
            await self.stub.Describe(stage_pb2.DescribeRequest())

    def give_up(self) -> None:
        """The stage hangs: it is not healthy until it answers again."""
        if not self.lost:
            self.lost = True
            self._search = asyncio.create_task(self._find())
            self._changed()

    async def _find(self) -> None:
        while self.lost:
            try:
                await self.stub.Describe(stage_pb2.DescribeRequest(), timeout=_METRICS_S)
                self.lost = False
            except aio.AioRpcError:
                await asyncio.sleep(_RETRY_S)
        log.info("a stage that was lost answers again", extra={"party": self.name})
        self._changed()

    async def close(self) -> None:
        """Close the channel."""
        if self._search:
            self._search.cancel()
            await asyncio.gather(self._search, return_exceptions=True)
        await self._channel.close()

    async def watch(self, changed: Callable[[], None]) -> None:
        """Keep `healthy` up to date, for ever; `changed` is called after every change."""
        self._changed = changed
        while True:
            stub = health_pb2_grpc.HealthStub(self._channel)
            try:
                # Not wait_for_ready: only a call that does not wait learns why there is no connection.
                async for reply in stub.Watch(health_pb2.HealthCheckRequest()):  # type: ignore[attr-defined]
                    self.trouble = None
                    self._set(reply.status == health_pb2.HealthCheckResponse.SERVING, changed)
            except aio.AioRpcError as error:
                self._note(error_from(error, self.place))
            self._set(False, changed)
            await asyncio.sleep(_RETRY_S)
            if self._dialer.generation != self._generation:
                before = self._channel
                self._dial()
                await before.close()

    def _note(self, error: StagelineError) -> None:
        """Log once what no waiting will mend; a stage that is merely absent may come."""
        if isinstance(error, Unauthenticated):
            if self.trouble is None:
                log.warning("a stage can't be used", extra={"error": str(error)})
            self.trouble = error

    def _set(self, healthy: bool, changed: Callable[[], None]) -> None:
        if healthy != self._serving:
            self._serving = healthy
            changed()


class StageTable:
    """All stages of a deployment, by replica and stage. They open sessions for whoever shows `key`, if they require
    one.
    """

    def __init__(
        self, deployment: Deployment, addresses: list[list[str]], dialer: Dialer | None = None, *, key: str = ""
    ) -> None:
        self.deployment = deployment
        self.dialer, self.key = (dialer := dialer or Dialer()), key
        self.rows = [
            [RemoteStage(deployment, r, s, dialer.resolved(address), dialer) for s, address in enumerate(row)]
            for r, row in enumerate(addresses)
        ]
        self._watchers: list[asyncio.Task[None]] = []

    def __iter__(self) -> Iterator[RemoteStage]:
        return (stage for row in self.rows for stage in row)

    @property
    def healthy(self) -> bool:
        """Whether every stage serves."""
        return all(stage.healthy for stage in self)

    def health(self) -> dict[tuple[int, int], bool]:
        """Whether each (replica, stage) serves."""
        return {(s.replica, s.stage): s.healthy for s in self}

    def start(self, changed: Callable[[], None]) -> None:
        """Watch the health of all stages; `changed` is called when that of one changes."""
        self._watchers = [asyncio.create_task(stage.watch(changed)) for stage in self]

    async def close(self) -> None:
        """Stop watching and close all channels."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        await asyncio.gather(*(stage.close() for stage in self))


async def metrics_of(table: Iterable[RemoteStage]) -> dict[tuple[int, int], bytes]:
    """The metrics of every healthy stage, by (replica, stage); those that do not answer have none."""

    async def ask(stage: RemoteStage) -> tuple[tuple[int, int], bytes]:
        request = stage_pb2.DescribeRequest(metrics=True)
        try:
            reply = await stage.stub.Describe(request, timeout=_METRICS_S)
        except aio.AioRpcError:
            return (stage.replica, stage.stage), b""
        return (stage.replica, stage.stage), reply.metrics

    return dict(await asyncio.gather(*(ask(stage) for stage in table if stage.healthy)))
