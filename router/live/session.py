"""One live session: the router's machines in wall time, its clients' streams, its recording and its digest."""

import time
import uuid
from collections.abc import Callable, Sequence

from router.cluster.connections import StageConnections
from router.cluster.stages import StageTable
from router.live.delivery import Delivery, Lateness
from router.live.machine import LiveMachine
from router.live.options import LiveOptions
from router.live.recorder import Recorder
from router.live.stream import Listener, Stream
from router.live.traces import LiveTraces
from router.live.workload import LiveWorkload
from router.metrics.vllm import Watch
from stageline.engine.closing import close_run, window_of
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.types import Cancellation, Request, RequestRecord
from stageline.errors import BadInput, StagelineError, Unavailable
from stageline.report.canonical import canonical_line
from stageline.report.digest import Digest
from stageline.report.spans.context import TraceContext
from stageline.runtime.clock import live_clock
from stageline.runtime.shell import SessionShell
from stageline.sync.foresight import ForesightedConductor
from stageline.wire.runs import stage_record


class LiveSession:
    """Built by the supervisor, which opens it, waits for its end and closes it. `watch` sees what the engine reports,
    `idle` is called when the last request has ended.
    """

    def __init__(
        self, route: Route, table: StageTable, options: LiveOptions, lateness: Lateness, recorder: Recorder | None,
        watch: Watch | None = None, idle: Callable[[], None] = lambda: None, traces: LiveTraces | None = None,
    ) -> None:  # fmt: skip
        self.id = uuid.uuid4().hex
        self.options = options
        self.clock = live_clock(time.time_ns(), options.dilation)
        self.workload = LiveWorkload(options.quantum_ns, options.dilation)
        self._trace = traces.recorder(self.id, self.clock) if traces else None
        self._digest = Digest()
        self._delivery = Delivery(self.clock, lateness, self._ended, watch, idle)
        self.router = Router(route, options.scheduling, options.seed, self._delivery, self._trace)
        if watch:
            watch.begin(self.router)
        ahead_ns = int(options.tolerance_ns / options.dilation)
        self.conductor = ForesightedConductor(self.router, self.workload, options.seed, self._trace, ahead_ns)
        dispatched = watch.dispatched if watch else None
        self.machine = LiveMachine(self.conductor, self.workload, self.clock, options.tolerance_ns, dispatched)
        self.shell = SessionShell("the router", self.machine, follower=self._delivery)
        self.connections = StageConnections(self.id, route, table, self.shell, options.payload, self.clock)
        self._recorder, self._watch = recorder, watch
        self._next = 0
        self.lost_requests = self.unseen_requests = 0  # that had not ended, and had not even arrived, when it broke off

    # -- its life

    async def open(self, digest: str, advertise: str) -> None:
        """Return when clients may come. Raises the StagelineError that keeps it from opening."""
        await self.connections.open(digest, self.options.seed, advertise)
        self.shell.release()

    async def failure(self) -> StagelineError | None:
        """Wait for the end; why it broke off, or None after a good end."""
        await self.shell.over()
        return await self.connections.failure() if self.shell.error else None

    async def finish(self) -> str | None:
        """End an idle session in good order; its digest, or None if nobody came or it broke off meanwhile."""
        self.workload.close()
        self.shell.wake()
        if not await self.shell.machine_done() or self.shell.ended.done():
            return None
        snapshots = await self.connections.snapshots(*window_of(self.conductor))
        totals = close_run(self.conductor, [stage_record(s.account) for s in snapshots])
        return self._digest.finish(totals.stages) if self.router.arrived else None

    async def close(self, error: StagelineError | None) -> None:
        """Let the stages go; streams that are still open end with the error."""
        self.shell.close()
        if error:
            self._count_lost()
        self._delivery.fail(error or Unavailable("the live session has ended"))
        if self._trace:
            self._trace.abandon(max(0, self.clock.at_ns(time.monotonic_ns())))
        await self.connections.close()

    def _count_lost(self) -> None:
        self.lost_requests = len(self.router.sequences)
        while self.workload.pending:
            self.unseen_requests += isinstance(self.workload.take(), Request)
        if self._watch:
            self._watch.lost(self.unseen_requests)

    # -- clients

    @property
    def requests(self) -> int:
        """How many are open: their clients have not been given their end yet."""
        return len(self._delivery.streams)

    @property
    def waiting(self) -> int:
        """Requests that wait for admission."""
        return self.workload.pending + sum(len(r.waiting) for r in self.router.replicas)

    def next_arrival(self) -> tuple[int, int]:
        """Index and arrival of a request that comes now; valid until the event loop's next iteration."""
        self.shell.wake()
        return self._next, self.machine.stamp_ns(time.monotonic_ns())

    def submit(
        self, requests: Sequence[Request], listener: Listener, parent: TraceContext | None = None
    ) -> list[Stream]:
        """The requests arrive, numbered and stamped from `next_arrival` on; `parent` is the caller's span.

        Raises BadInput if one of them would not fit even empty ledgers; then none arrives.
        """
        for request in requests:
            if self.router.refusal(request) == "kv":
                tokens = request.prompt_tokens + request.max_output_tokens
                reason = f"{tokens} tokens of prompt and output do not fit the KV cache of any stage"
                raise BadInput("prompt", None, reason)
        streams = [self._arrive(request, listener, parent) for request in requests]
        self.shell.wake()
        return streams

    def cancel(self, stream: Stream) -> None:
        """Its client has left."""
        if self._delivery.streams.get(stream.index) is not stream:
            return
        _, at_ns = self.next_arrival()
        if self._recorder:
            self._recorder.cancel(stream.index, at_ns)
        self.workload.put(at_ns, Cancellation(index=stream.index, at_ns=at_ns))
        self.shell.wake()

    def _arrive(self, request: Request, listener: Listener, parent: TraceContext | None) -> Stream:
        if self._recorder:
            self._recorder.request(request)
        if self._trace:
            self._trace.arrived(request.index, request.arrival_ns, parent)
        self._next = request.index + 1
        self.workload.put(request.arrival_ns, request)
        return self._delivery.open(request.index, request.arrival_ns, listener)

    def _ended(self, record: RequestRecord) -> None:
        self._digest.request(record.index, canonical_line(record))
        if self._trace:
            self._trace.request(record)
