"""The Router service: one run at a time."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from grpc import aio

from router.api.generate import GenerateContext, generate
from router.api.keys import Gate
from router.api.openai.http_server import OpenAiServer
from router.cluster.stages import StageTable
from router.live.service import LiveService
from router.metrics.vllm import Watch
from router.runs.session import RunSession
from router.runs.status import RouterStatus
from router.runs.workload import SentWorkload
from stageline.engine.route import Route
from stageline.engine.settings import read_scheduling
from stageline.engine.types import Workload
from stageline.errors import BadInput, Busy, PlanMismatch, ProtocolError, SessionUnknown, StagelineError
from stageline.plan.schema import Plan
from stageline.runtime.server import Announce, Endpoints
from stageline.v1 import flow_pb2, router_pb2, router_pb2_grpc
from stageline.wire.channels import SECURE
from stageline.wire.errors import abort, plain
from stageline.wire.frames import PayloadMode, mode_of
from stageline.wire.inlink import FlowContext, InLink, serve_flow
from stageline.wire.runs import requests_of
from stageline.workload import open_workload
from stageline.workload.spec import parse_spec

_HEAR_S = 5.0
RunContext = aio.ServicerContext[router_pb2.RunRequest, router_pb2.RunReply]


class RouterServicer(router_pb2_grpc.RouterServicer):
    """Drives sessions on all stages of a plan; healthy while every stage serves.

    `on_run` is called with a run when it begins, and with None when it has ended.
    """

    name = "stageline.v1.Router"

    def __init__(
        self,
        plan: Plan,
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
        gate: Gate | None = None,
        status: RouterStatus | None = None,
    ) -> None:
        self._gate, self._trust_runs = gate or Gate(), trust_runs
        self._route, self._digest = Route(plan), plan.digest()
        self._table, self._advertise, self._payload = table, advertise, payload
        self._window = window or max(2, 2 * len(os.sched_getaffinity(0)))
        self._on_run, self._watch = on_run, watch
        self._live, self._supervisor, self._http = live, live.supervisor if live else None, http
        self.status = status or RouterStatus(plan, table, self._supervisor)
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
            self._gate.check(_authorization(context))
            await self._claim()
            try:
                if self._supervisor:
                    await self._supervisor.pause()
                await self._carry_out(context)
            finally:
                self._ending = asyncio.create_task(self._end())
                await asyncio.shield(self._ending)
        except StagelineError as error:
            await _hear_out(context)
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
            self._gate.admit(_authorization(context), context.peer().rpartition(":")[0])
            await generate(self._live, request, context)
        except StagelineError as error:
            await abort(context, error)

    async def Status(  # noqa: N802
        self, request: router_pb2.StatusRequest, context: aio.ServicerContext[Any, Any]
    ) -> router_pb2.StatusReply:
        """See router.proto."""
        try:
            self._gate.check(_authorization(context))
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

    async def _carry_out(self, context: RunContext) -> None:
        run = await self._prepare(context)
        self._run = self.status.run = run
        self._on_run(run)
        async with aclosing(run.replies(self._digest, self._advertise)) as replies:
            async for reply in replies:
                await context.write(reply)

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

    async def _prepare(self, context: RunContext) -> RunSession:
        """Read the start and all requests."""
        first = await context.read()
        if not isinstance(first, router_pb2.RunRequest) or first.WhichOneof("message") != "start":
            raise ProtocolError("the first message of a run is its start")
        start = first.start
        if start.plan_digest and start.plan_digest != self._digest:
            raise PlanMismatch(
                f"this cluster serves plan {self._digest}, the run is for plan {start.plan_digest}; "
                "run the plan that the cluster was started with"
            )
        try:
            scheduling = read_scheduling(start.scheduling or b"{}")
        except msgspec.DecodeError as error:
            raise BadInput("scheduling", None, str(error)) from None
        if scheduling.users_classes and not self._trust_runs:
            named, hint = scheduling.users_classes[0], "start the router with --trust-runs"
            raise BadInput("scheduling policy", named, "a class by name", hint)
        workload, total = await self._workload(start, context)
        return RunSession(
            self._route,
            self._table,
            workload,
            scheduling,
            seed=start.seed,
            window=start.window or self._window,
            mode=mode_of(start.payload_mode) if start.payload_mode else self._payload,
            tokens=start.tokens,
            total=total,
            watch=self._watch,
        )

    async def _workload(self, start: router_pb2.RunStart, context: RunContext) -> tuple[Workload, int]:
        """The run's workload, and how many requests it has if that is known."""
        rows = SentWorkload()
        while isinstance(request := await context.read(), router_pb2.RunRequest):
            if request.WhichOneof("message") != "rows":
                raise ProtocolError("after the start a run takes rows")
            rows.add(requests_of(request.rows, rows.total))
        if not start.HasField("workload"):
            return rows, rows.total
        if rows.total:
            raise ProtocolError("a run takes rows or a workload, not both")
        spec = start.workload
        if parse_spec(spec.text) is None:
            raise BadInput("workload", spec.text, "not a synthetic workload", "send the rows of a file instead")
        if "trace" in spec.text and not self._trust_runs:
            raise BadInput(
                "workload", spec.text, "names a file of the router's host", "start the router with --trust-runs"
            )
        workload = open_workload(
            spec.text, seed=spec.seed, rate_scale=spec.rate_scale or "1", requests=spec.requests or None
        )
        return workload, spec.requests

    async def _link_of(self, hello: flow_pb2.Hello) -> InLink:
        live = self._supervisor.current if self._supervisor else None
        if live and live.id == hello.session:
            return live.connections.in_link(hello)
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


async def _hear_out(context: RunContext) -> None:
    """Take what the client still sends: one that is cut off while it writes never learns why."""
    with contextlib.suppress(TimeoutError, aio.UsageError):
        async with asyncio.timeout(_HEAR_S):
            while isinstance(await context.read(), router_pb2.RunRequest):
                pass
