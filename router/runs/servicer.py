"""The Router service: one run at a time."""

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from grpc import aio

from router.api.generate import GenerateContext, generate
from router.api.keys import AccessControl
from router.api.openai.http_server import OpenAiServer
from router.cluster.stages import StageTable
from router.live.service import LiveService
from router.live.watchdog import DEADLINE_NS
from router.metrics.vllm import Watch
from router.runs.order import Order, RunContext, hear_out, read_order
from router.runs.session import RunSession
from router.runs.status import RouterStatus
from stageline.errors import (
    Busy,
    SessionUnknown,
    StagelineError,
    Unavailable,
)
from stageline.runtime.server import Announce, Endpoints
from stageline.units import NS_PER_S
from stageline.v1 import flow_pb2, router_pb2, router_pb2_grpc
from stageline.wire.channels import SECURE
from stageline.wire.errors import abort, plain
from stageline.wire.frames import PayloadMode, mode_of
from stageline.wire.inlink import FlowContext, InLink, serve_flow

_STALL_DEADLINES = 3  # a client that takes nothing for so many deadlines of a stage is let go


class RouterServicer(router_pb2_grpc.RouterServicer):
    """Drives sessions on all stages of a table; healthy while every stage serves.

    `on_run` is called with a run when it begins, and with None when it has ended.
    """

    name = "stageline.v1.Router"

    def __init__(
        self,
        table: StageTable,
        *,
        advertise: str = "",
        window: int = 0,
        payload: PayloadMode = "size",
        on_run: Callable[[RunSession | None], None] = lambda _: None,
        watch: Watch | None = None,
        live: LiveService | None = None,
        http: OpenAiServer | None = None,
        trust_runs: bool = False,
        access: AccessControl | None = None,
        status: RouterStatus | None = None,
        deadline_ns: int = DEADLINE_NS,
    ) -> None:
        self._deadline_ns = deadline_ns
        self._access, self._trust_runs = access or AccessControl(), trust_runs
        self._table, self._advertise, self._payload = table, advertise, payload
        self._window = window or max(2, 2 * len(os.sched_getaffinity(0)))
        self._on_run, self._watch = on_run, watch
        self._live, self._supervisor, self._http = live, live.supervisor if live else None, http
        self.status = status or RouterStatus(table, self._supervisor)
        self._run: RunSession | None = None
        self._busy = False
        self._ending: asyncio.Task[None] | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._draining = False
        self._tasks: set[asyncio.Task[None]] = set()

    # -- the life of the server

    def add_to(self, server: aio.Server) -> None:
        """Register the servicer."""
        router_pb2_grpc.add_RouterServicer_to_server(self, server)

    async def start(self, endpoints: Endpoints, announce: Announce) -> Endpoints:
        """See Service: watch the stages."""
        own = self._advertise or endpoints.grpc
        self._advertise = own if "://" in own or not self._table.dialer.files.cert else SECURE + own
        self._table.start(partial(self._health_changed, announce))
        if self._supervisor:
            self._supervisor.start(self._advertise)
        if self._http:
            return msgspec.structs.replace(endpoints, http=await self._http.start())
        return endpoints

    async def drained(self) -> None:
        """Refuse new runs; returns when the one under way has ended."""
        self._draining = True
        await self._free.wait()
        if self._supervisor:
            await self._supervisor.drained()

    async def stop(self) -> None:
        """End the run that is left and let the stages go."""
        if self._run:
            self._run.shell.fail(Busy("the router is shutting down"))
        if self._supervisor:
            await self._supervisor.stop()
        if self._http:
            await self._http.stop()
        await self._table.close()

    # -- the service

    async def Run(  # type: ignore[override]  # noqa: N802 - it reads and writes by itself
        self, request_iterator: object, context: RunContext
    ) -> None:
        """See router.proto."""
        try:
            self._access.check(_authorization(context))
            await self._claim()
            try:
                if self._supervisor:
                    self._supervisor.check_idle()
                order = await read_order(context, self._table.deployment, trust=self._trust_runs)
                if self._supervisor:  # not before all is here: live traffic waits for nobody's upload
                    await self._supervisor.pause()
                await self._carry_out(order, context)
            finally:
                self._ending = asyncio.create_task(self._end())
                await asyncio.shield(self._ending)
        except StagelineError as error:
            await hear_out(context)
            await abort(context, plain(error))

    async def Flow(  # type: ignore[override]  # noqa: N802 - it reads and writes by itself
        self, request_iterator: object, context: FlowContext
    ) -> None:
        """See router.proto."""
        await serve_flow(context, self._link_of)

    async def Generate(  # type: ignore[override]  # noqa: N802 - it writes by itself
        self, request: router_pb2.GenerateRequest, context: GenerateContext
    ) -> None:
        """See router.proto."""
        try:
            self._access.admit(_authorization(context), context.peer().rpartition(":")[0])
            await generate(self._live, request, context)
        except StagelineError as error:
            await abort(context, error)

    async def Status(  # noqa: N802
        self, request: router_pb2.StatusRequest, context: aio.ServicerContext[Any, Any]
    ) -> router_pb2.StatusReply:
        """See router.proto."""
        try:
            self._access.check(_authorization(context))
        except StagelineError as error:
            await abort(context, error)
        return await self.status.reply(metrics=request.metrics)

    # -- runs

    async def _claim(self) -> None:
        """Make this the run that is under way."""
        if self._ending:  # its client has left, its stages are still being closed
            await asyncio.shield(self._ending)
        if self._draining:
            raise Busy("the router is shutting down")
        if self._busy:
            now = f" ({self._run.progress().done} requests done)" if self._run else ""
            raise Busy(f"another run is under way{now}; one at a time")
        self._busy = True
        self._free.clear()

    async def _carry_out(self, order: Order, context: RunContext) -> None:
        start = order.start
        self._run = self.status.run = run = RunSession(
            self._table,
            order.fleet,
            order.workload,
            seed=start.seed,
            window=start.window or self._window,
            mode=mode_of(start.payload_mode) if start.payload_mode else self._payload,
            tokens=start.tokens,
            total=order.total,
            deadline_ns=self._deadline_ns,
            watch=self._watch,
        )
        self._on_run(run)
        stall_s = _STALL_DEADLINES * self._deadline_ns / NS_PER_S
        async with aclosing(run.replies(self._advertise)) as replies:
            async for reply in replies:
                try:
                    async with asyncio.timeout(stall_s):
                        await context.write(reply)
                except TimeoutError:
                    raise Unavailable(f"the client of the run took nothing for {stall_s:g} s; it is let go") from None

    async def _end(self) -> None:
        """Let the stages go, even if the client has left."""
        if self._run:
            await self._run.close()
            self._on_run(None)
        self._run = self.status.run = None
        self._busy, self._ending = False, None
        if self._supervisor:
            self._supervisor.resume()
        self._free.set()

    async def _link_of(self, hello: flow_pb2.Hello) -> InLink:
        live = self._supervisor.current if self._supervisor else None
        if live and (connections := live.connections_of(hello.session)):
            return connections.in_link(hello)
        if self._run is None or self._run.id != hello.session:
            raise SessionUnknown(f"session {hello.session!r} is not open at this router")
        return self._run.connections.in_link(hello)

    def _health_changed(self, announce: Announce) -> None:
        if self._supervisor:
            self._supervisor.look_again()
        task = asyncio.ensure_future(announce(self._table.healthy))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _authorization(context: aio.ServicerContext[Any, Any]) -> str:
    """The key that a client shows, as over HTTP; Flow needs none, for stages know the session's id."""
    return str(dict(context.invocation_metadata() or ()).get("authorization", ""))
