"""A session's connections: one Open stream per stage that holds the session, and the links from and to the router."""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from grpc import aio

import stageline
from router.cluster.kv_orders import KvOrders
from router.cluster.stages import RemoteStage, StageTable
from stageline.engine.router import Router
from stageline.errors import Busy, ProtocolError, RunFailed, SessionUnknown, StagelineError, Unavailable
from stageline.runtime.calls import answer
from stageline.runtime.names import upstream_name
from stageline.runtime.shell import SessionShell
from stageline.sync.realtime import LiveClock
from stageline.v1 import flow_pb2, stage_pb2
from stageline.wire import grpc_options
from stageline.wire.errors import LocatedError, error_from, is_transport, locate
from stageline.wire.frames import MODES, FrameEncoder, PayloadMode
from stageline.wire.inlink import InLink
from stageline.wire.outlink import OutLink, Peer
from stageline.wire.version import check_version, wire_format

R = TypeVar("R")
_CONSEQUENCES = (Unavailable, Busy, SessionUnknown)  # what a stage may say because of what happened elsewhere
_BLAME_S = 0.5  # how long the loss of a stage may take to show after its neighbours noticed


class StageConnections:
    """Opens the session at every stage, watches it, and closes it there. Link keys are replicas."""

    def __init__(
        self,
        session: str,
        table: StageTable,
        shell: SessionShell,
        mode: PayloadMode,
        clock: LiveClock | None = None,
    ) -> None:
        self.session, self._table, self._shell, self._mode = session, table, shell, mode
        self._clock = clock
        self._deployment = table.deployment
        self._routes = self._deployment.fleet.routes
        self.in_links = [self._in_link(r) for r in range(len(self._routes))]
        self.out_links = [self._out_link(r) for r in range(len(self._routes))]
        self._kv = KvOrders(session, table, shell) if mode != "size" else None
        self._watchers: list[asyncio.Task[None]] = []
        self._lost: list[StagelineError] = []
        self._causes: list[StagelineError] = []  # of stages that ended the session for a reason of their own
        self._blamed = asyncio.Event()
        self._closing = False
        self.started = False

    @property
    def frames(self) -> tuple[int, int]:
        """Frames that came back, and the microbatches in them."""
        decoders = [link.decoder for link in self.in_links]
        return sum(d.frames for d in decoders), sum(d.items for d in decoders)

    def carry_kv_of(self, router: Router) -> None:
        """Have stages send the KV of the router's hand-overs, unless the payload mode is `size`."""
        if self._kv is not None:
            router.on_transfer(self._kv.booked)

    async def open(self, seed: int, advertise: str) -> None:
        """Return when every link is open. Raises StagelineError, naming the stage, when one does not open."""
        loop = asyncio.get_running_loop()
        if trouble := next((s.trouble for s in self._table if s.trouble), None):
            raise trouble
        described = await self._together(
            answer(
                s.stub.Describe(stage_pb2.DescribeRequest(), timeout=grpc_options.HELLO_S, wait_for_ready=True), s.place
            )
            for s in self._table
        )
        for stage, reply in zip(self._table, described, strict=True):
            check_version(stage.place, reply.version, reply.wire, "this router")
        plans: dict[str, bytes] = {}  # by digest
        opened: list[asyncio.Future[None]] = []
        for stage, reply in zip(self._table, described, strict=True):
            request = self._request(stage, seed, advertise)
            if reply.plan_digest != stage.plan_digest:
                if stage.plan_digest not in plans:
                    plans[stage.plan_digest] = stage.plan.canonical()
                request.plan = plans[stage.plan_digest]
            opened.append(loop.create_future())
            self._watchers.append(asyncio.create_task(self._watch(stage, request, opened[-1])))
        try:
            async with asyncio.timeout(grpc_options.CONNECT_S + grpc_options.HELLO_S):
                await self._together([*(link.open() for link in self.out_links), *opened])
        except TimeoutError:
            silent = [s.place for s, o in zip(self._table, opened, strict=True) if not o.done()]
            raise Unavailable(f"the session did not open in time at {', '.join(silent) or 'a link'}") from None
        self.started = True

    def in_link(self, hello: flow_pb2.Hello) -> InLink:
        """The return link that a hello means."""
        if hello.replica >= len(self.in_links) or hello.link != self._routes[hello.replica].visits:
            raise ProtocolError(f"link {hello.link} of replica {hello.replica} does not end at the router")
        return self.in_links[hello.replica]

    async def failure(self) -> StagelineError:
        """Why the session failed, once it has: a lost stage, or a stage's own reason to end it, explains the errors of
        its neighbours, to whom it is merely gone.
        """
        error = self._shell.error
        assert error is not None
        if not isinstance(error.error, Unavailable):
            found = self._lost[0] if self._lost else error
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BLAME_S):
                    await self._blamed.wait()
            found = next(iter((*self._lost, *self._causes)), error)
        if isinstance(found, LocatedError) and isinstance(found.error, Unavailable) and self.started:
            return LocatedError(RunFailed(str(found.error)), found.party)
        return found

    async def close(self) -> None:
        """Close the session at every stage that still answers. Never raises; may be called again."""
        if self._closing:
            return
        self._closing = True
        self._shell.close()
        broken = str(self._shell.error) if self._shell.error else ""
        request = stage_pb2.CloseRequest(session=self.session, broken=broken)
        if self._watchers:
            calls = [
                answer(s.stub.Close(request, timeout=grpc_options.HELLO_S), s.place)
                for s, watcher in zip(self._table, self._watchers, strict=True)
                if not watcher.done() and not s.lost
            ]
            await asyncio.gather(*calls, return_exceptions=True)
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        if self._kv is not None:
            await self._kv.close()
        await asyncio.gather(*(link.close() for link in self.out_links))

    def lose(self, error: LocatedError) -> None:
        """A stage hangs: the same end as if it had crashed."""
        self._lost.append(error)
        self._blamed.set()
        self._shell.fail(error)

    async def snapshots(self, start_ns: int, end_ns: int) -> list[stage_pb2.SnapshotReply]:
        """The final accounts of all stages, in the order of replicas and stages, once all KV has landed."""
        if self._kv is not None:
            await self._kv.settled()
            if self._shell.error is not None:
                raise await self.failure()
        request = stage_pb2.SnapshotRequest(
            session=self.session, final=True, window_start_ns=start_ns, window_end_ns=end_ns
        )
        snapshots = await self._together(
            answer(s.stub.Snapshot(request, timeout=grpc_options.CALL_S), s.place) for s in self._table
        )
        if self._kv is not None:
            self._kv.check(snapshots)
        return snapshots

    async def _watch(self, stage: RemoteStage, request: stage_pb2.OpenRequest, opened: "asyncio.Future[None]") -> None:
        """Holds one stage's Open stream."""
        call = stage.stub.Open(request)
        try:
            first = await call.read()
            if isinstance(first, stage_pb2.OpenReply):
                if not opened.done():
                    opened.set_result(None)
                await call.read()
            error: StagelineError = Unavailable(f"{stage.place} ended the session")
        except aio.AioRpcError as failed:
            error = error_from(failed, stage.place)
            if is_transport(failed):
                error = Unavailable(f"{stage.place} was lost during the run" if opened.done() else str(error))
        finally:
            call.cancel()
        if self._closing:
            return
        located = locate(error, stage.name)
        if isinstance(error, Unavailable):
            self._lost.append(located)
            self._blamed.set()
        elif not isinstance(located.error, _CONSEQUENCES):
            self._causes.append(located)
            self._blamed.set()
        if not opened.done():
            opened.set_exception(located)
        self._shell.fail(located)

    async def _together(self, awaitables: Iterable[Awaitable[R]]) -> list[R]:
        """All results in order, or the first error as it comes; the rest is cancelled then."""
        tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def _request(self, stage: RemoteStage, seed: int, advertise: str) -> stage_pb2.OpenRequest:
        row, route = self._table.rows[stage.replica], self._routes[stage.replica]
        visits, stage_of, clock = route.visits, route.stage_of, self._clock
        downstream = [
            stage_pb2.Downstream(link=v + 1, address=advertise if v + 1 == visits else row[stage_of[v + 1]].address)
            for v in route.inputs[stage.stage]
        ]
        return stage_pb2.OpenRequest(
            session=self.session,
            plan_digest=stage.plan_digest,
            pool=stage.pool,
            replica=stage.replica,
            replicas=len(self._routes),
            stage=stage.stage,
            seed=seed,
            payload_mode=MODES[self._mode],
            downstream=downstream,
            clock=stage_pb2.LiveClock(anchor_unix_ns=clock.anchor_unix_ns, dilation=clock.dilation) if clock else None,
            key=self._table.key,
            version=stageline.__version__,
            wire=wire_format(),
        )

    def _in_link(self, replica: int) -> InLink:
        route = self._routes[replica]
        sender = upstream_name(route.plan, route.visits, self._deployment.replica_name(replica))
        return InLink(self._shell, replica, route.visits, sender)

    def _out_link(self, replica: int) -> OutLink:
        route = self._routes[replica]
        first = self._table.rows[replica][route.stage_of[0]]
        encoder = FrameEncoder(route.plan.links[0].bytes_per_token, returns=False, mode=self._mode)
        hello = flow_pb2.Hello(session=self.session, link=0, replica=replica)
        peer = Peer(first.address, first.place)
        return OutLink(self._shell, replica, hello, to=peer, encoder=encoder, dialer=self._table.dialer)
