"""A client of the router's runs and status."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import grpc
import msgspec
from grpc import aio

import stageline
from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Observer, Request, RunTotals
from stageline.errors import ProtocolError, RunFailed, Unavailable
from stageline.v1 import router_pb2
from stageline.wire import grpc_options
from stageline.wire.connection import RouterConnection
from stageline.wire.frames import MODES, PayloadMode
from stageline.wire.runs import BATCH_ROWS, play, rows_of, run_totals
from stageline.wire.version import check_version, wire_format


class WorkloadSpec(msgspec.Struct, frozen=True):
    """A synthetic workload that the router generates itself."""

    text: str
    seed: int = 0
    rate_scale: str = ""
    requests: int = 0


class SentRows:
    """The requests of a run as messages. With `keep` they can be sent again, from the first one on."""

    def __init__(self, requests: Iterator[Request | Cancellation], *, keep: bool = False) -> None:
        self._requests, self._keep = requests, keep
        self._kept: list[bytes] = []

    def messages(self) -> Iterator[router_pb2.RunRequest]:
        """All of them. Raises whatever the iterator of requests raises."""
        for kept in self._kept:
            yield router_pb2.RunRequest.FromString(kept)
        while batch := list(islice(self._requests, BATCH_ROWS)):
            message = router_pb2.RunRequest(rows=rows_of(batch))
            if self._keep:
                self._kept.append(message.SerializeToString())
            yield message


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. None or 0: the router's default."""

    plan_digest: str  # of the plan or fleet
    scheduling: Scheduling | None  # None: a fleet, which has its own
    seed: int
    payload: PayloadMode | None = None
    window: int = 0
    tokens: bool = True
    spec: WorkloadSpec | None = None


class RunCost(msgspec.Struct, frozen=True, kw_only=True):
    """Frames, CPU and wall time of a run; see RunCost in router.proto."""

    frames: int
    promise_frames: int
    cpu_ns: int
    wall_ns: int


class StageHealth(msgspec.Struct, frozen=True):
    """One stage as the router sees it."""

    name: str
    replica: int
    stage: int
    address: str
    healthy: bool
    metrics: bytes = b""  # in Prometheus' text format, if requested
    pool: str = ""  # empty: the plan stands alone


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is; see Progress in router.proto."""

    now_ns: int
    done: int
    total: int
    running: int
    waiting: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a router."""

    plan: bytes  # or its fleet
    plan_digest: str
    session: str
    progress: RunProgress
    stages: tuple[StageHealth, ...]
    metrics: bytes = b""  # the router's own, if requested
    live: str = ""  # name of the live session; empty: none is open
    trouble: str = ""  # why live requests are not taken or do not get on


def status_of(reply: router_pb2.StatusReply) -> Status:
    """The state that a reply states."""
    return Status(
        plan=reply.plan,
        plan_digest=reply.plan_digest,
        session=reply.session,
        progress=RunProgress(**{name: getattr(reply.progress, name) for name in RunProgress.__struct_fields__}),
        stages=tuple(
            StageHealth(s.name, s.replica, s.stage, s.address, s.healthy, s.metrics, s.pool) for s in reply.stages
        ),
        metrics=reply.metrics,
        live=reply.live.session,
        trouble=reply.live.reason,
    )


class RouterClient(RouterConnection):
    """Every method raises StagelineError, never a gRPC error."""

    async def status(self, timeout_s: float = grpc_options.CALL_S, *, metrics: bool = False) -> Status:
        """The state of the router, with the metrics of all servers if requested."""
        return status_of(await self._status(timeout_s, metrics=metrics))

    async def healthy(self, deadline_s: float, check: Callable[[], None] = lambda: None) -> Status:
        """Waits until every stage serves. At the deadline raises Unavailable, naming the stages that do not.

        `check` may raise to end the wait early, for example because a process has ended.
        """
        missing = [self.place]
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    check()
                    try:
                        status = await self.status()
                        missing = [f"stage {s.stage} at {s.address}" for s in status.stages if not s.healthy]
                        if not missing:
                            return status
                    except Unavailable:
                        missing = [self.place]
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise Unavailable(f"not healthy after {deadline_s:g} s: {', '.join(missing)}") from None

    async def run(
        self, order: RunOrder, requests: Iterator[Request | Cancellation] | SentRows, observer: Observer
    ) -> tuple[RunTotals, RunCost]:
        """Sends the requests, notifies the observer, returns the totals. Raises StagelineError."""
        outgoing = _Outgoing(order, requests if isinstance(requests, SentRows) else SentRows(requests))
        call = self._stub.Run(outgoing.messages(), metadata=self._metadata)
        last_ns: dict[int, int] = {}
        try:
            while isinstance(reply := await call.read(), router_pb2.RunReply):
                match reply.WhichOneof("message"):
                    case "results":
                        play(reply.results, observer, last_ns)
                    case "ended":
                        return run_totals(reply.ended), _cost(reply.ended.cost)
                    case "started":
                        check_version(self.place, reply.started.version, reply.started.wire, "this client")
                    case "progress":
                        pass
                    case other:
                        raise ProtocolError(f"{self.place} sent {other or 'nothing'} during a run")
            await _raise_status(call)
        except (aio.AioRpcError, asyncio.CancelledError) as error:
            if outgoing.error is not None:
                raise outgoing.error from None
            if isinstance(error, asyncio.CancelledError):
                raise
            raise self._error(error) from None
        finally:
            call.cancel()
        raise RunFailed(f"{self.place} ended the run without a result")


async def _raise_status(call: aio.StreamStreamCall[Any, Any]) -> None:
    """Raises the status of an ended stream unless it is OK: a read may see the end before the status."""
    code = await call.code()
    if code != grpc.StatusCode.OK:
        raise aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), details=await call.details()
        )


class _Outgoing:
    """The client's messages of a run. A bad row ends the call; `error` keeps the reason, which gRPC would hide."""

    def __init__(self, order: RunOrder, rows: SentRows) -> None:
        self._order, self._rows = order, rows
        self.error: Exception | None = None

    async def messages(self) -> AsyncIterator[router_pb2.RunRequest]:
        """The start, then the requests in batches."""
        order = self._order
        start = router_pb2.RunStart(
            plan_digest=order.plan_digest,
            scheduling=msgspec.json.encode(order.scheduling) if order.scheduling else b"",
            seed=order.seed,
            window=order.window,
            tokens=order.tokens,
            version=stageline.__version__,
            wire=wire_format(),
        )
        if order.payload:
            start.payload_mode = MODES[order.payload]
        if order.spec:
            start.workload.CopyFrom(router_pb2.WorkloadSpec(**msgspec.structs.asdict(order.spec)))
        yield router_pb2.RunRequest(start=start)
        try:
            for message in self._rows.messages() if not order.spec else ():
                yield message
        except Exception as error:
            self.error = error
            raise


def _cost(cost: router_pb2.RunCost) -> RunCost:
    return RunCost(frames=cost.frames, promise_frames=cost.promise_frames, cpu_ns=cost.cpu_ns, wall_ns=cost.wall_ns)
