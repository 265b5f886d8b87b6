"""The Stage service: sessions come and go, one at a time."""

import asyncio
import hmac
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from grpc import aio

import stageline
from stage_server.session import StageSession
from stageline.engine.route import Route
from stageline.errors import (
    Busy,
    PlanMismatch,
    ProtocolError,
    SessionUnknown,
    StagelineError,
    Unauthenticated,
    Unavailable,
)
from stageline.plan.parse import parse_plan
from stageline.runtime.deployment import Deployment
from stageline.runtime.names import session_name
from stageline.runtime.server import Announce, Endpoints
from stageline.v1 import flow_pb2, stage_pb2, stage_pb2_grpc
from stageline.wire import grpc_options
from stageline.wire.channels import Dialer
from stageline.wire.errors import abort
from stageline.wire.inlink import FlowContext, InLink, serve_flow
from stageline.wire.kv_in import KvContext, KvIn, serve_kv
from stageline.wire.version import check_version, wire_format

log = logging.getLogger(__name__)
A = TypeVar("A")


class StageServicer(stage_pb2_grpc.StageServicer):
    """Holds at most one session. `on_session` is called with it when it begins, and with None when it has ended.

    `metrics`: in Prometheus' text format.
    """

    name = "stageline.v1.Stage"

    def __init__(
        self,
        deployment: Deployment | None,
        *,
        stage: int = -1,
        replica: int = -1,
        on_session: Callable[[StageSession | None], None] = lambda _: None,
        dialer: Dialer | None = None,
        key: str = "",
        metrics: Callable[[], bytes] = bytes,
    ) -> None:
        self._pinned = deployment
        pools = deployment.fleet.pools if deployment else ()
        self._routes = {pool.route.plan.digest(): pool.route for pool in pools}  # those that it holds, by plan digest
        self._stage, self._replica = stage, replica
        self._on_session, self._metrics = on_session, metrics
        self._dialer, self._key = dialer or Dialer(), key
        self._session: StageSession | None = None
        self._ending: asyncio.Task[None] | None = None  # the loop holds tasks weakly
        self._changed = asyncio.Condition()
        self._draining = False

    # -- the life of the server

    def add_to(self, server: aio.Server) -> None:
        """Register the servicer."""
        stage_pb2_grpc.add_StageServicer_to_server(self, server)

    async def start(self, endpoints: Endpoints, announce: Announce) -> Endpoints:
        """See Service: a stage serves at once, and does nothing in the background."""
        await announce(True)
        return endpoints

    async def drained(self) -> None:
        """Refuse new sessions; returns when the open one has ended."""
        self._draining = True
        async with self._changed:
            await self._changed.wait_for(lambda: self._session is None)

    async def stop(self) -> None:
        """End the session that is left."""
        if self._session:
            self._session.shell.fail(Busy(f"{self._session.shell.name} is shutting down"))

    # -- the service

    async def Open(  # type: ignore[override]  # noqa: N802 - it reads and writes by itself
        self, request: stage_pb2.OpenRequest, context: aio.ServicerContext[stage_pb2.OpenRequest, stage_pb2.OpenReply]
    ) -> None:
        """See stage.proto."""
        try:
            session = self._begin(request)
            try:
                await self._notify()
                await self._hold(session, context)
            finally:
                # A router that goes away cancels this call, perhaps while it ends: the stage must be free all the same.
                self._ending = asyncio.create_task(self._end(session))
                await asyncio.shield(self._ending)
        except StagelineError as error:
            await abort(context, error)

    async def Flow(  # type: ignore[override]  # noqa: N802 - it reads and writes by itself
        self, request_iterator: object, context: FlowContext
    ) -> None:
        """See stage.proto."""
        await serve_flow(context, self._link_of)

    async def Describe(  # noqa: N802
        self, request: stage_pb2.DescribeRequest, context: aio.ServicerContext[Any, Any]
    ) -> stage_pb2.DescribeReply:
        """See stage.proto."""
        session = self._session
        return stage_pb2.DescribeReply(
            plan_digest=self._held(),
            stage=session.index if session else max(self._stage, 0),
            replica=session.replica if session else max(self._replica, 0),
            version=stageline.__version__,
            pid=os.getpid(),
            metrics=self._metrics() if request.metrics else b"",
            busy=session is not None,
            wire=wire_format(),
        )

    async def Snapshot(  # noqa: N802
        self, request: stage_pb2.SnapshotRequest, context: aio.ServicerContext[Any, Any]
    ) -> stage_pb2.SnapshotReply:
        """See stage.proto."""

        async def take() -> stage_pb2.SnapshotReply:
            session = self._known(request.session)
            if request.final:
                await session.settled()
            return session.snapshot(request.window_start_ns, request.window_end_ns)

        return await _guarded(context, take())

    async def SendKv(  # noqa: N802
        self, request: stage_pb2.SendKvRequest, context: aio.ServicerContext[Any, Any]
    ) -> stage_pb2.SendKvReply:
        """See stage.proto."""

        async def send() -> stage_pb2.SendKvReply:
            return await self._known(request.session).kv.send(request)

        return await _guarded(context, send())

    async def ReceiveKv(  # type: ignore[override]  # noqa: N802 - it reads and writes by itself
        self, request_iterator: object, context: KvContext
    ) -> None:
        """See stage.proto."""

        def stream_of(hello: stage_pb2.KvHello) -> KvIn:
            return self._known(hello.session).kv.receive(hello)

        await serve_kv(context, stream_of)

    async def Close(  # noqa: N802
        self, request: stage_pb2.CloseRequest, context: aio.ServicerContext[Any, Any]
    ) -> stage_pb2.CloseReply:
        """See stage.proto."""
        if self._session and self._session.id == request.session:
            if request.broken:
                self._session.shell.fail(Unavailable(request.broken))
            self._session.shell.close()
            async with self._changed:
                await self._changed.wait_for(lambda: not self._session or self._session.id != request.session)
        return stage_pb2.CloseReply()

    # -- sessions

    def _begin(self, request: stage_pb2.OpenRequest) -> StageSession:
        """A new session, if this server is free and means the same plan and stage."""
        if self._key and not hmac.compare_digest(request.key.encode(), self._key.encode()):
            raise Unauthenticated("this stage opens sessions for the router that has its key: give both --stage-key")
        if self._draining:
            raise Busy("the stage server is shutting down")
        if self._session:
            holder = session_name(self._session.id)
            raise Busy(f"{self._session.shell.name} is held by session {holder}; one router at a time may drive it")
        check_version("the router", request.version, request.wire, "this stage")
        route = self._route_for(request)
        replicas = request.replicas if request.pool else route.plan.replicas
        if not (request.stage < len(route.plan.stages) and request.replica < replicas):
            raise ProtocolError(f"the plan has no stage {request.stage} of replica {request.replica}")
        for own, asked, what in ((self._stage, request.stage, "stage"), (self._replica, request.replica, "replica")):
            if own not in {-1, asked}:
                raise PlanMismatch(f"this server is {what} {own}, not {asked}; check the router's list of stages")
        session = StageSession(route, request, self._dialer)
        self._session = session
        log.info("session opened", extra={"session": session_name(session.id), "party": session.shell.name})
        return session

    def _route_for(self, request: stage_pb2.OpenRequest) -> Route:
        if self._pinned and self._pinned.kind == "fleet":
            self._check_pool(self._pinned, request)
        if request.plan_digest in self._routes:
            return self._routes[request.plan_digest]
        if self._pinned or not request.plan:
            raise PlanMismatch(
                f"this stage holds plan {', '.join(self._routes) or '(none)'}, the router plan {request.plan_digest}; "
                "start both with the same file"
            )
        plan = parse_plan(request.plan, "plan")
        if plan.digest() != request.plan_digest:
            raise PlanMismatch(f"the plan that came has digest {plan.digest()}, not {request.plan_digest}")
        route = Route(plan)
        self._routes = {request.plan_digest: route}
        return route

    @staticmethod
    def _check_pool(own: Deployment, request: stage_pb2.OpenRequest) -> None:
        """Raises PlanMismatch unless the replica is of the same pool in this server's fleet and in the router's."""
        found = own.pool(request.replica) if request.replica < own.replicas else "(none)"
        if found != request.pool:
            raise PlanMismatch(
                f"replica {request.replica} is of pool {found} in this stage's fleet, of pool "
                f"{request.pool or '(none)'} in the router's; start both with the same file"
            )

    def _held(self) -> str:
        """Digest of the plan that it would serve; empty while that depends on what a router sends."""
        if self._pinned and 0 <= self._replica < self._pinned.replicas:
            return self._pinned.plan_digest(self._replica)
        return next(iter(self._routes)) if len(self._routes) == 1 else ""

    async def _hold(
        self, session: StageSession, context: aio.ServicerContext[stage_pb2.OpenRequest, stage_pb2.OpenReply]
    ) -> None:
        """Connects, reports ready, and stays until the session ends."""
        self._on_session(session)
        try:
            await session.connect()
        except* StagelineError as errors:
            error = errors.exceptions[0]
            assert isinstance(error, StagelineError)
            session.shell.fail(error)
        else:
            await context.write(stage_pb2.OpenReply())
            session.shell.release()
        await session.shell.over()
        if session.shell.error:
            raise session.shell.error

    async def _end(self, session: StageSession) -> None:
        try:
            await session.close()
        finally:
            self._session = None
            self._on_session(None)
            await self._notify()
        log.info("session ended", extra={"session": session_name(session.id)})

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _link_of(self, hello: flow_pb2.Hello) -> InLink:
        """The link that a hello means; one that comes before its session is held for a moment."""
        try:
            async with asyncio.timeout(grpc_options.HELLO_S), self._changed:
                await self._changed.wait_for(lambda: self._session is not None)
        except TimeoutError:
            pass
        return self._known(hello.session).in_link(hello)

    def _known(self, session: str) -> StageSession:
        if self._session is None or self._session.id != session:
            raise SessionUnknown(f"session {session!r} is not open at this stage; it may have been restarted")
        return self._session


async def _guarded(context: aio.ServicerContext[Any, Any], work: Awaitable[A]) -> A:
    """Runs a unary handler's work; its errors become the call's status."""
    try:
        return await work
    except StagelineError as error:
        await abort(context, error)
