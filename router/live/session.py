"""One live session: the router's machines in wall time, its clients' streams, its recording and its digest."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence

from router.cluster.connections import StageConnections
from router.cluster.stages import StageTable
from router.counts import requests_waiting
from router.live.again import Retries, replayed
from router.live.attempt import Attempt, Eyes, Ground
from router.live.delivery import Delivery, Lateness
from router.live.options import LiveOptions
from router.live.recorder import Recorder
from router.live.stream import Listener, Stream
from router.live.traces import LiveTraces
from router.metrics.vllm import Watch
from stageline.engine.closing import close_run, window_of
from stageline.engine.conductor import Conductor
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet
from stageline.engine.types import Cancellation, Request, RequestRecord
from stageline.errors import BadInput, StagelineError, Unavailable
from stageline.report.canonical import canonical_line
from stageline.report.digest import Digest
from stageline.report.spans.context import TraceContext
from stageline.runtime.clock import live_clock
from stageline.sync.router import Dispatched
from stageline.wire.runs import stage_record


class LiveSession:
    """Built by the supervisor, which opens it, waits for its end and closes it. `watch` sees what the engine reports,
    `idle` is called when the last request has ended.

    After the loss of a stage it can be done again: `break_off`, then `again`. Until that attempt has caught up, all
    figures are those of the one before.
    """

    def __init__(
        self, fleet: ServedFleet, table: StageTable, options: LiveOptions, lateness: Lateness,
        recorder: Recorder | None, watch: Watch | None = None, idle: Callable[[], None] = lambda: None,
        traces: LiveTraces | None = None,
    ) -> None:  # fmt: skip
        self.options = options
        self.clock = live_clock(time.time_ns(), options.dilation)
        self.resuming = False  # it has broken off, and has not caught up yet
        self._ground = Ground(fleet, table, options, self.clock)
        first = uuid.uuid4().hex
        self._trace = traces.recorder(first, self.clock) if traces else None
        self._digest = Digest()
        self._delivery = Delivery(self.clock, lateness, self._ended, watch, idle)
        dispatched = watch.dispatched if watch else None
        self._retries = Retries(self._delivery, dispatched) if options.retries else None
        self._attempt = self._newest = Attempt(first, self._ground, self._eyes(dispatched))
        self._caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._past_frames = (0, 0)  # of attempts that are over
        if watch:
            watch.begin(self.router)
        self._recorder, self._watch = recorder, watch
        self._next = 0
        self.lost_requests = self.unseen_requests = 0  # that had not ended, and had not even arrived, when it broke off

    # -- its parts

    @property
    def id(self) -> str:
        """What it is called at the stages now."""
        return self._newest.id

    @property
    def router(self) -> Router:
        """Its rules."""
        return self._attempt.router

    @property
    def conductor(self) -> Conductor:
        """What orders its events."""
        return self._attempt.conductor

    @property
    def newest(self) -> Attempt:
        """The attempt that is under way, though it may not have caught up."""
        return self._newest

    @property
    def frames(self) -> tuple[int, int]:
        """Frames that came back, and the microbatches in them, of all attempts, also those that did not catch up."""
        counts = [self._past_frames, *(attempt.connections.frames for attempt in {self._attempt, self._newest})]
        return sum(frames for frames, _ in counts), sum(items for _, items in counts)

    def connections_of(self, session: str) -> StageConnections | None:
        """Its links, if that is what it is called at the stages."""
        return self._newest.connections if self._newest.id == session else None

    # -- its life

    async def open(self, advertise: str) -> None:
        """Return when clients may come. Raises the StagelineError that keeps it from opening."""
        await self._newest.connections.open(self.options.seed, advertise)
        self._newest.shell.release()

    async def failure(self) -> StagelineError | None:
        """Wait for the end; why it broke off, or None after a good end."""
        await self._attempt.shell.over()
        return await self._attempt.connections.failure() if self._attempt.shell.error else None

    async def finish(self) -> str | None:
        """End an idle session in good order; its digest, or None if nobody came or it broke off meanwhile."""
        attempt = self._attempt
        attempt.workload.close()
        attempt.shell.wake()
        if not await attempt.shell.machine_done() or attempt.shell.ended.done():
            return None
        snapshots = await attempt.connections.snapshots(*window_of(self.conductor))
        totals = close_run(self.conductor, [stage_record(s.account) for s in snapshots])
        return self._digest.finish(totals.stages) if self.router.arrived else None

    async def close(self, error: StagelineError | None) -> None:
        """Let the stages go; streams that are still open end with the error."""
        self._newest.shell.close()
        if error:
            self._count_lost()
        self._delivery.fail(error or Unavailable("the live session has ended"))
        self._abandon_traces()
        await self._newest.connections.close()

    # -- its further attempts

    @property
    def retries(self) -> int:
        """Attempts after the first one."""
        return self._retries.made if self._retries else 0

    @property
    def may_retry(self) -> bool:
        """Whether it may be done again."""
        retries = self._retries
        return retries is not None and retries.made < self.options.retries and not retries.journal.full

    async def break_off(self) -> None:
        """A stage is lost: emulated time stands still where it is, until another attempt has caught up."""
        if not self.resuming:
            self.resuming = True
            self._attempt.machine.stamp_ns(time.monotonic_ns())
            self._abandon_traces()
        await self._newest.connections.close()

    def stand_still(self) -> None:
        """Bring the slip up to date while it is broken off."""
        if self.resuming:
            self.clock.hold_at(self._attempt.machine.told_ns, time.monotonic_ns())

    def begin_again(self) -> Attempt:
        """The next attempt, which `again` opens."""
        assert self._retries is not None, "asked only where it may be done again"
        self._caught_up = asyncio.get_running_loop().create_future()
        if self._newest is not self._attempt:
            self._over(self._newest)
        self._newest = self._retries.attempt(self._ground, self._eyes(None), self._attempt)
        return self._newest

    async def again(self, advertise: str) -> None:
        """Open the next attempt; return once it has caught up. Raises StagelineError."""
        assert self._retries is not None
        await self._newest.connections.open(self.options.seed, advertise)
        self._retries.made += 1
        await replayed(self._newest, self._caught_up)

    def _look_how_far(self) -> None:
        if self.resuming and self._newest.is_as_far_as(self._attempt):
            self._take_over()
            self._caught_up.set_result(None)
            self._newest.shell.wake()  # what is due to clients

    def _take_over(self) -> None:
        """The newest attempt has caught up: it is the session from now on."""
        assert self._retries
        self._over(self._attempt)
        self._attempt, self.resuming = self._newest, False
        if self._watch:
            self._watch.resumed(self.router, self._retries.held.sequences)
        self._retries.held.release()

    def _over(self, attempt: Attempt) -> None:
        """Keep what it counted; another attempt takes its place."""
        (frames, items), (past_frames, past_items) = attempt.connections.frames, self._past_frames
        self._past_frames = past_frames + frames, past_items + items

    def _eyes(self, dispatched: Dispatched | None) -> Eyes:
        retries = self._retries
        if retries is None:
            return Eyes(self._delivery, self._delivery, self._trace, dispatched)
        return Eyes(retries.observer, self._delivery, self._trace, retries.dispatched, self._look_how_far)

    def _abandon_traces(self) -> None:
        if self._trace:
            self._trace.abandon(max(0, self.clock.at_ns(time.monotonic_ns())))

    def _count_lost(self) -> None:
        self.lost_requests = len(self.router.sequences)
        while self._attempt.workload.pending:
            self.unseen_requests += isinstance(self._attempt.workload.take(), Request)
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
        return self._attempt.workload.pending + requests_waiting(self.router)

    def next_arrival(self) -> tuple[int, int]:
        """Index and arrival of a request that comes now; valid until the event loop's next iteration."""
        attempt, now_ns = self._attempt, time.monotonic_ns()
        if self.resuming:
            self.stand_still()
            return self._next, attempt.workload.edge_ns
        attempt.shell.wake()
        return self._next, attempt.machine.stamp_ns(now_ns)

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
        self._attempt.shell.wake()
        return streams

    def cancel(self, stream: Stream) -> None:
        """Its client has left."""
        if self._delivery.streams.get(stream.index) is not stream:
            return
        _, at_ns = self.next_arrival()
        if self._recorder:
            self._recorder.cancel(stream.index, at_ns)
        self._put(at_ns, Cancellation(index=stream.index, at_ns=at_ns))
        self._newest.shell.wake()

    def _arrive(self, request: Request, listener: Listener, parent: TraceContext | None) -> Stream:
        if self._recorder:
            self._recorder.request(request)
        if self._trace:
            self._trace.arrived(request.index, request.arrival_ns, parent)
        self._next = request.index + 1
        self._put(request.arrival_ns, request)
        return self._delivery.open(request.index, request.arrival_ns, listener)

    def _put(self, at_ns: int, event: Request | Cancellation) -> None:
        self._newest.workload.put(at_ns, event)
        if self._retries:
            self._retries.journal.add(at_ns, event)

    def _ended(self, record: RequestRecord) -> None:
        self._digest.request(record.index, canonical_line(record))
        if self._trace:
            self._trace.request(record)
