"""One live session: the router's machines in wall time, its clients' streams, its recording and its digest."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from router.cluster.connections import StageConnections
from router.cluster.stages import StageTable
from router.live.alarm import Alarm
from router.live.delivery import Delivery, Lateness
from router.live.options import LiveOptions
from router.live.recorder import Recorder
from router.live.stream import Stream, Wakeup
from router.live.traces import LiveTraces
from router.live.workload import LiveWorkload
from router.machine import RouterMachine
from router.metrics.vllm import Watch
from stageline.engine.closing import close_run, window_of
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.types import NEVER, Cancellation, Request, RequestRecord
from stageline.errors import BadInput, StagelineError, Unavailable
from stageline.report.canonical import canonical_line
from stageline.report.digest import Digest
from stageline.report.spans.context import TraceContext
from stageline.runtime.clock import LiveClock
from stageline.runtime.pacing import LEAD_NS, PacedLink, PacedMachine
from stageline.runtime.party import Party
from stageline.sync.foresight import ForesightedConductor
from stageline.sync.router import RouterNode
from stageline.wire.runs import stage_record

log = logging.getLogger(__name__)
_WARN_S = 5.0  # at most one warning about slipping in that time


class LiveSession:
    """Built by the keeper, which opens it, waits for its end and closes it. `watch` sees what the engine tells,
    `idle` is told when the last request has ended.
    """

    def __init__(
        self, route: Route, table: StageTable, options: LiveOptions, lateness: Lateness, recorder: Recorder | None,
        watch: Watch | None = None, idle: Callable[[], None] = lambda: None, traces: LiveTraces | None = None,
    ) -> None:  # fmt: skip
        self.id = uuid.uuid4().hex
        self.options = options
        self.clock = LiveClock(time.time_ns(), options.dilation)
        self.workload = LiveWorkload(self.clock, options.quantum_ns)
        self.delivery = Delivery(self.clock, lateness, self._delivered)
        self._trace = traces.recorder(self.id, self.clock) if traces else None
        self.router = Router(route, options.scheduling, options.seed, self, self._trace)
        if watch:
            watch.begin(self.router)
        self._ahead_ns = int(options.tolerance_ns / options.dilation)
        self.conductor = ForesightedConductor(self.router, self.workload, options.seed, self._trace, self._ahead_ns)
        self.node = RouterNode(self.conductor, 0)  # a window of frames would hold back what is due
        self.machine = PacedMachine(RouterMachine(self.node, watch.dispatched if watch else None))
        self.party = Party("the router", self.machine, after_turn=self._after_turn, before_turn=self._tell_time)
        self.mesh = StageConnections(self.id, route, table, self.party, options.payload, self.clock)
        for replica, link in enumerate(self.mesh.out_links):
            paced = PacedLink(self.clock, link, route.plan.links[0].latency_ns)
            self.party.downstream[replica] = self.machine.links[replica] = paced
        self.streams: dict[int, Stream] = {}
        self._recorder, self._watch, self._idle = recorder, watch, idle
        self._digest = Digest()
        self._next = 0
        self._warned_s = 0.0
        self._drained = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self.party.wake)

    # -- its life

    async def open(self, digest: str, advertise: str) -> None:
        """Returns when clients may come. Raises the StagelineError that keeps it from opening."""
        await self.mesh.open(digest, self.options.seed, advertise)
        self.party.release()

    async def failure(self) -> StagelineError | None:
        """Waits for the end; why it broke off, or None after a good end."""
        await self.party.over()
        return await self.mesh.failure() if self.party.error else None

    async def finish(self) -> str | None:
        """Ends an idle session in good order; its digest, or None if nobody came or it broke off meanwhile."""
        self.workload.close()
        self.party.wake()
        drained = asyncio.ensure_future(self._drained.wait())
        either: set[asyncio.Future[Any]] = {drained, self.party.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        if self.party.ended.done():
            return None
        snapshots = await self.mesh.snapshots(*window_of(self.conductor))
        totals = close_run(self.conductor, [stage_record(s.account) for s in snapshots])
        return self._digest.finish(totals.stages) if self.router.arrived else None

    async def close(self, error: StagelineError | None) -> None:
        """Lets the stages go; streams that are still open end with the error."""
        self._alarm.cancel()
        self.machine.close()
        self.delivery.close()
        for stream in self.streams.values():
            stream.fail(error or Unavailable("the live session has ended"))
        self.streams.clear()
        if self._trace:
            self._trace.abandon(self.clock.now_ns())
        await self.mesh.close()

    # -- clients

    @property
    def live(self) -> int:
        """Requests whose end has not been told yet."""
        return len(self.streams)

    @property
    def waiting(self) -> int:
        """Requests that wait for admission."""
        return self.workload.pending + sum(len(r.waiting) for r in self.router.replicas)

    def check(self, request: Request) -> None:
        """Raises BadInput for a request that would not even fit empty ledgers."""
        if self.router.refusal(request) == "kv":
            tokens = request.prompt_tokens + request.max_output_tokens
            raise BadInput("prompt", None, f"{tokens} tokens of prompt and output do not fit the KV cache of any stage")

    def submit(self, request: Request, bell: Wakeup, parent: TraceContext | None = None) -> Stream:
        """The request arrives now: its index and its arrival are given here. `parent` is the caller's span."""
        at_ns = self.workload.open_edge_ns()
        request = msgspec.structs.replace(request, index=self._next, arrival_ns=at_ns)
        if self._recorder:
            self._recorder.request(request)
        if self._trace:
            self._trace.arrived(request.index, at_ns, parent)
        self._next += 1
        stream = self.streams[request.index] = Stream(request.index, at_ns, bell)
        self.workload.put(at_ns, request)
        self.party.wake()
        return stream

    def cancel(self, stream: Stream) -> None:
        """Its client has left."""
        if self.streams.get(stream.index) is not stream:
            return
        at_ns = self.workload.open_edge_ns()
        if self._recorder:
            self._recorder.cancel(stream.index, at_ns)
        self.workload.put(at_ns, Cancellation(index=stream.index, at_ns=at_ns))
        self.party.wake()

    # -- what the engine tells

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        self.delivery.token(self.streams[index], now_ns)
        if self._watch:
            self._watch.token(index, now_ns, since_ns)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self._digest.request(record.index, canonical_line(record))
        due_ns = record.last_token_ns if record.outcome == "finished" else 0
        self.delivery.end(self.streams[record.index], due_ns or 0, record)
        if self._watch:
            self._watch.request(record)
        if self._trace:
            self._trace.request(record)

    def _delivered(self, stream: Stream) -> None:
        del self.streams[stream.index]
        if not self.streams:
            self._idle()

    # -- time

    def _tell_time(self) -> None:
        """How far emulated time has come, as far as the pacing of the links lets anything leave."""
        self._hold_back()
        self.conductor.reached_ns = self.clock.at_ns(LEAD_NS)

    def _hold_back(self) -> None:
        """Emulated time waits for a completion that is overdue: a slow host must not look like a slow cluster."""
        overdue_ns = self.conductor.overdue_ns
        if overdue_ns >= NEVER:
            return
        slipped_ns = self.clock.hold_at(max(overdue_ns + self._ahead_ns, self.workload.promised_ns))
        if slipped_ns and self._loop.time() - self._warned_s > _WARN_S:
            self._warned_s = self._loop.time()
            total_s = self.clock.slip_ns / 1e9
            log.warning("this host is too slow for the dilation: the emulated clock slips", extra={"slip_s": total_s})

    def _after_turn(self) -> None:
        self.delivery.flush_soon()
        if self.node.done:
            self._drained.set()
            return
        until_ns, foreseen_ns = self.conductor.blocked_ns, self.conductor.foreseen_ns
        if any(o.owes and o.speaks for o in self.node.outlets):
            until_ns = min(until_ns, self.workload.promised_ns)
        if until_ns < NEVER:
            self._alarm.within(self.clock.wall_s_until(self.workload.edge_before(until_ns)))
        if foreseen_ns < NEVER:
            self._alarm.within(self.clock.wall_s_until(foreseen_ns) - LEAD_NS / 1e9)
