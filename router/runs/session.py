"""One run: the router's machine, its connections, and what is sent to the client."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Iterable

import stageline
from router.cluster.connections import StageConnections
from router.cluster.stages import StageTable
from router.counts import requests_running, requests_waiting
from router.live.watchdog import DEADLINE_NS, Watchdog
from router.metrics.vllm import Watch
from router.runs.result_buffer import ResultBuffer, TeeObserver
from stageline.engine.closing import close_run, window_of
from stageline.engine.conductor import Conductor
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet
from stageline.engine.types import Observer, Workload
from stageline.runtime.names import session_name
from stageline.runtime.shell import SessionShell
from stageline.sync.router import RouterMachine
from stageline.v1 import router_pb2, stage_pb2
from stageline.wire.frames import PayloadMode
from stageline.wire.runs import ended_of, stage_record
from stageline.wire.version import wire_format

_REPORT_S = 0.25  # wall time between two messages to the client, unless there is much to say


class RunSession:
    """Built when a run's requests are there; `replies` drives it to its end."""

    def __init__(
        self,
        table: StageTable,
        fleet: ServedFleet,
        workload: Workload,
        *,
        seed: int,
        window: int,
        mode: PayloadMode,
        tokens: bool,
        total: int = 0,
        deadline_ns: int = DEADLINE_NS,
        watch: Watch | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.total, self._seed, self._window = total, seed, window
        self.results = ResultBuffer(tokens=tokens)
        self._observer: Observer = TeeObserver(self.results, watch) if watch else self.results
        self._digest = table.deployment.digest
        self.router = Router(fleet, seed, self._observer)
        if watch:
            watch.begin(self.router)
        self.conductor = Conductor(self.router, workload)
        machine = RouterMachine(self.conductor, window, watch.dispatched if watch else None)
        self.shell = SessionShell("the router", machine, after_poll=self._after_poll)
        self.connections = StageConnections(self.id, table, self.shell, mode)
        self.connections.carry_kv_of(self.router)
        self._watchdog = Watchdog(table, machine, None, deadline_ns, self.connections.lose)
        self._stir = asyncio.Event()
        self._given_up = False

    async def replies(self, advertise: str) -> AsyncGenerator[router_pb2.RunReply, None]:
        """Everything that is sent to the client. Raises the StagelineError that ended the run early.

        The last reply comes when all stages are free again. Whoever stops listening earlier must `close`.
        """
        cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
        await self.connections.open(self._seed, advertise)
        started = router_pb2.Started(
            session=session_name(self.id), plan_digest=self._digest, window=self._window,
            version=stageline.__version__, wire=wire_format(),
        )  # fmt: skip
        yield router_pb2.RunReply(started=started)
        self.shell.ended.add_done_callback(lambda _: self._stir.set())
        self.shell.release()
        watching = asyncio.create_task(self._watchdog.run())
        try:
            async for reply in self._reports():
                yield reply
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        snapshots = await self.connections.snapshots(*window_of(self.conductor))
        totals = close_run(self.conductor, [stage_record(s.account) for s in snapshots])
        ended = ended_of(totals)
        ended.cost.CopyFrom(self._cost(snapshots))
        ended.cost.cpu_ns += time.process_time_ns() - cpu_ns
        ended.cost.wall_ns = time.perf_counter_ns() - wall_ns
        await self.connections.close()
        yield router_pb2.RunReply(ended=ended)

    async def close(self) -> None:
        """Let all stages go. What has not ended by now is lost."""
        self._give_up()
        await self.connections.close()

    @property
    def lost_requests(self) -> int:
        """Requests that had not ended when the run broke off, or was given up."""
        return len(self.router.sequences) if self._given_up else 0

    def _give_up(self) -> None:
        """Whatever is in the system leaves it as incomplete."""
        if not self._given_up:
            self._given_up = True
            for sequence in self.router.sequences.values():
                self._observer.request(sequence.record("incomplete"))

    @property
    def unseen_requests(self) -> int:
        """Requests that it took and that had not arrived when it broke off: its client has them still."""
        return 0

    @property
    def frames(self) -> tuple[int, int]:
        """Frames that came back, and the microbatches in them."""
        return self.connections.frames

    def progress(self) -> router_pb2.Progress:
        """How far the run is."""
        return router_pb2.Progress(
            now_ns=self.conductor.last_completion_ns,
            done=self.router.finished + self.router.failed,
            total=self.total,
            running=requests_running(self.router),
            waiting=requests_waiting(self.router),
        )

    async def _reports(self) -> AsyncGenerator[router_pb2.RunReply, None]:
        """Progress, tokens and records until the run is over. Raises why it failed, after the results so far."""
        while not self.shell.machine.done and not self.shell.ended.done():
            try:
                async with asyncio.timeout(_REPORT_S):
                    await self._stir.wait()
            except TimeoutError:
                pass
            self._stir.clear()
            for reply in self.results.take():
                yield reply
            yield router_pb2.RunReply(progress=self.progress())
            self.shell.release()
        if self.shell.machine.done:
            return
        self._give_up()
        for reply in self.results.take():
            yield reply
        raise await self.connections.failure()

    def _after_poll(self) -> None:
        if self.shell.machine.done:
            self._stir.set()
        elif self.results.full:
            self.shell.hold()
            self._stir.set()

    def _cost(self, snapshots: Iterable[stage_pb2.SnapshotReply]) -> router_pb2.RunCost:
        decoders = [link.decoder for link in self.connections.in_links]
        cost = router_pb2.RunCost(
            frames=sum(d.frames for d in decoders), promise_frames=sum(d.promise_frames for d in decoders)
        )
        for snapshot in snapshots:
            cost.frames += snapshot.frames
            cost.promise_frames += snapshot.promise_frames
            cost.cpu_ns += snapshot.cpu_ns
        return cost
