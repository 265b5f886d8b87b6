"""Keeps a live session open: opens it when all stages serve, reopens it after a failure, pauses it for other runs."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from router.cluster.stages import StageTable
from router.live.attempt import Attempt
from router.live.delivery import Lateness
from router.live.options import LiveOptions
from router.live.recorder import Recorder
from router.live.session import LiveSession
from router.live.traces import LiveTraces
from router.live.watchdog import Watchdog
from router.metrics.vllm import Watch
from stageline.engine.fleet import Fleet
from stageline.engine.served import ServedFleet
from stageline.errors import Busy, RunFailed, SessionUnknown, StagelineError, Unavailable
from stageline.runtime.names import session_name
from stageline.sync.realtime import LiveClock
from stageline.units import NS_PER_S
from stageline.wire.errors import LocatedError
from stageline.workload.recording import RecordingHeader

log = logging.getLogger(__name__)
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0)
AGAIN_S = 20.0  # for which the streams of a lost session wait until all stages serve again
_STAND_STILL_S = 0.25
REFUSALS = ("unavailable", "queue")


class LiveSupervisor:
    """At most one session at a time. `session` is the one that takes requests, if there is one."""

    def __init__(
        self,
        fleet: ServedFleet,
        table: StageTable,
        options: LiveOptions,
        watch: Watch | None = None,
        traces: LiveTraces | None = None,
    ) -> None:
        self.fleet, self.options = fleet, options
        self.lateness = Lateness()
        self.session: LiveSession | None = None
        self.on_session: Callable[[], None] = lambda: None  # called when `session` has opened or ended
        self.reason = "the live session is not open yet"
        self.last_digest = ""
        self.slipped_ns = 0  # of sessions that are over
        self.failures = 0
        self._retries = 0  # of sessions that are over
        self.refused = Counter(dict.fromkeys(REFUSALS, 0))  # requests that were not taken
        self._watch, self._traces = watch, traces
        self._recorder = Recorder(options.record) if options.record else None
        self._table, self.deployment = table, table.deployment
        self._task: asyncio.Task[None] | None = None
        self._current: LiveSession | None = None  # also while it opens or closes
        self._tasks: set[asyncio.Task[None]] = set()
        self._watchdog: Watchdog | None = None
        self._paused = False
        self._draining = False
        self._changed = asyncio.Condition()

    # -- its life

    @property
    def current(self) -> LiveSession | None:
        """The session, also while it opens or closes."""
        return self._current

    def start(self, advertise: str) -> None:
        """Begin to keep a session; stages reach the router at `advertise`."""
        self._task = asyncio.create_task(self._keep(advertise))
        self._task.add_done_callback(self._stopped)

    def look_again(self) -> None:
        """A stage has come or gone, or the last request has ended: check again whether a session may open or leave."""
        task = asyncio.ensure_future(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def check_idle(self) -> None:
        """Raises Busy while live requests are being served."""
        if self.session and self.session.requests:
            raise Busy(f"{self.session.requests} live requests are being served; a run can begin when there are none")

    async def pause(self) -> None:
        """End an idle session, for a run in emulated time. Raises Busy when it has requests."""
        self.check_idle()
        self._paused, self.session = True, None
        self.reason = "a run in emulated time is in progress; one session at a time"
        await self._leave()

    def resume(self) -> None:
        """The run in emulated time is over."""
        self._paused = False
        self.look_again()

    async def drained(self) -> None:
        """Take no new requests; returns when the last one has ended and the session is closed."""
        self._draining = True
        self.reason = "the router is shutting down"
        async with self._changed:
            await self._changed.wait_for(lambda: not self.session or not self.session.requests)
        self._paused, self.session = True, None
        await self._leave()

    async def stop(self) -> None:
        """End what is left."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._traces:
            await self._traces.close()

    # -- clients

    @property
    def retries(self) -> int:
        """How often a session was done again."""
        return self._retries + (self._current.retries if self._current else 0)

    @property
    def recording_failures(self) -> int:
        """Recordings that ended early."""
        return self._recorder.failures if self._recorder else 0

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self.session is not None and not self.session.resuming and not self._draining

    @property
    def why_not(self) -> str:
        """Why requests are not taken, in words that are never empty."""
        return self.reason or "the live session is ending; the next one opens when all stages serve"

    @property
    def degraded(self) -> str:
        """Why requests that are taken do not get on; empty: they do."""
        return self._watchdog.reason if self._watchdog else ""

    def overdue_ns(self) -> dict[tuple[int, int], int]:
        """For how long each (replica, stage) has owed an answer; 0: it does not hang."""
        watchdog = self._watchdog
        return {(s.replica, s.stage): watchdog.owed_ns(s) if watchdog else 0 for s in self._table}

    def open_session(self, requests: int) -> LiveSession:
        """The session that takes that many requests now. Raises Unavailable or Busy."""
        session = self.session
        if session is None or not self.ready:
            self.refused["unavailable"] += requests
            raise Unavailable(f"no live session is open: {self.why_not}")
        if session.waiting + requests > self.options.queue:
            self.refused["queue"] += requests
            raise Busy(f"the queue is full: {session.waiting} requests wait, at most {self.options.queue} may")
        return session

    # -- sessions

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """This task ends by itself only on a bug; log it, or nobody learns why sessions stop opening."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.reason = f"internal error: {type(error).__name__}: {error}"
            log.critical("live sessions can't be kept any longer", exc_info=error)
            self._current = None  # runs in emulated time still work
            self.look_again()

    async def _keep(self, advertise: str) -> None:
        failures = 0
        while True:
            await self._may_open()
            error = await self._one_session(advertise)
            async with self._changed:
                self._retries, self._current = self.retries, None
                self._changed.notify_all()
            failures = failures + 1 if error else 0
            if error:
                self.reason = str(error)
                log.warning("no live session", extra={"error": str(error)})
                await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S)) - 1])

    async def _may_open(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._table.healthy and not self._paused)

    async def _one_session(self, advertise: str) -> StagelineError | None:
        """From open to close; why it broke off, if it did."""
        session = self._current = LiveSession(
            self.fleet, self._table, self.options, self.lateness, self._recorder, self._watch, self.look_again,
            self._traces,
        )  # fmt: skip
        error: StagelineError | None = None
        try:
            await session.open(advertise)
            self._begin(session)
            error = await self._last(session)
            while error is not None and await self._goes_on(session, advertise, error):
                error = await self._last(session)
        except StagelineError as failed:
            error = failed
        except asyncio.CancelledError:
            error = Unavailable("the router is shutting down")
            raise
        finally:
            self.session = None
            self._end_recording(None, str(error or "the session ended without a digest"))
            self.slipped_ns += session.clock.slip_ns
            lost = Unavailable(f"the live session broke off: {error}") if error else None
            self.failures += bool(error)
            await session.close(lost)
            self.on_session()
        return error

    def _begin(self, session: LiveSession) -> None:
        if self._recorder:
            self._recorder.begin(self._header())
        self.session, self.reason = session, ""
        self.on_session()
        log.info("live session open", extra={"session": session_name(session.id), "dilation": self.options.dilation})

    def _header(self) -> RecordingHeader:
        """What a recording says first: the plan with its settings, or the fleet, which has its own."""
        deployment = self.deployment
        header = RecordingHeader(seed=self.options.seed, dilation=self.options.dilation)
        if isinstance(deployment.document, Fleet):
            return msgspec.structs.replace(header, fleet_digest=deployment.digest)
        return msgspec.structs.replace(header, plan_digest=deployment.digest, scheduling=self.fleet.pools[0].scheduling)

    async def _last(self, session: LiveSession) -> StagelineError | None:
        """Until it breaks off or has to leave."""
        failing = asyncio.ensure_future(session.failure())
        leaving = asyncio.ensure_future(self._must_leave())
        async with self._watched(session.newest, session.clock), cancelled_after(failing, leaving):
            await asyncio.wait({failing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                return failing.result()
            self.session = None
            digest = await session.finish()
            if digest:
                self.last_digest = digest
                path = self._end_recording(digest)
                log.info("live session ended", extra={"digest": digest, "recording": path})
            return None

    @asynccontextmanager
    async def _watched(self, attempt: Attempt, clock: LiveClock | None) -> AsyncIterator[None]:
        """Lose the session when a stage owes something for too long. With its `clock`: say whom it waited for."""
        lose, deadline_ns = attempt.connections.lose, self.options.deadline_ns
        self._watchdog = Watchdog(self._table, attempt.machine, clock, deadline_ns, lose)
        watching = asyncio.ensure_future(self._watchdog.run())
        try:
            async with cancelled_after(watching):
                yield
        finally:
            self._watchdog = None

    # -- sessions that are done again

    async def _goes_on(self, session: LiveSession, advertise: str, error: StagelineError) -> bool:
        """After the loss of a stage: do it again, as often as it may be. False: this was its end.

        Stages that serve but refuse to open a session are asked for as long as those that do not serve yet.
        """
        found, failures = error, 0
        opened, since_s = session.retries, time.monotonic()
        async with cancelled_after(asyncio.ensure_future(_stand_still(session))):
            while is_loss(found) and session.may_retry and await self._may_again(session, found):
                if session.retries > opened:
                    opened, since_s = session.retries, time.monotonic()
                if failures and time.monotonic() - since_s > AGAIN_S:
                    break
                try:
                    async with self._watched(session.begin_again(), None):
                        await session.again(advertise)
                except StagelineError as failed:
                    found = failed
                    await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                    failures += 1
                else:
                    self.reason = ""
                    slip_s = session.clock.slip_ns / NS_PER_S
                    log.warning("the live session goes on", extra={"attempt": session.retries + 1, "slip_s": slip_s})
                    return True
        return False

    async def _may_again(self, session: LiveSession, error: StagelineError) -> bool:
        """Let go what is left of the attempt before, and wait until all stages serve: not for ever."""
        log.warning("the live session is done again", extra={"error": str(error), "attempt": session.retries + 2})
        self.reason = f"{error}; the session is being done again, and the requests that it has go on then"
        await session.break_off()
        try:
            async with self._changed, asyncio.timeout(AGAIN_S):
                await self._changed.wait_for(lambda: self._table.healthy or self._paused)
        except TimeoutError:
            return False
        return not self._paused

    def _end_recording(self, digest: str | None, reason: str = "") -> str:
        path = self._recorder.end(digest, reason) if self._recorder else None
        return str(path or "")

    async def _must_leave(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._paused)

    async def _leave(self) -> None:
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._current is None)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def is_loss(error: StagelineError) -> bool:
    """Whether a session broke off because a stage was lost, or did not open yet: waiting may mend that."""
    cause = error.error if isinstance(error, LocatedError) else error
    return isinstance(cause, RunFailed | Unavailable | Busy | SessionUnknown)


async def _stand_still(session: LiveSession) -> None:
    """Count the time in which it can't go on, until cancelled."""
    while True:
        session.stand_still()
        await asyncio.sleep(_STAND_STILL_S)


@asynccontextmanager
async def cancelled_after(*tasks: "asyncio.Future[Any]") -> AsyncIterator[None]:
    """These tasks live no longer than the block."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
