"""The asyncio shell of one machine of a session, stage or router: the only place where it meets a loop and a clock.

All frames and asks that come in one iteration of the event loop go in first, then the machine is polled once: frames
coalesce by themselves, and because stamps are data that changes nothing in the result. A machine with one incoming
link gets one frame an iteration and is polled at once.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from stageline.engine.types import NEVER
from stageline.errors import LawBroken, StagelineError
from stageline.sync.frames import Frame
from stageline.sync.machine import Machine
from stageline.wire.errors import LocatedError, locate
from stageline.wire.link_owner import Downstream, Upstream

log = logging.getLogger(__name__)
TICK_NS = 1_000_000  # the event loop's timers are no finer


class Follower(Protocol):
    """What is done in the machine's wake once its frames are on their way, such as handing tokens to clients."""

    next_timer_ns: int  # when to poll; NEVER: not before the machine has been polled again

    def poll(self, now_ns: int) -> None:
        """Do what is due."""
        ...


class SessionShell:
    """Drives a machine between its links. `ended` holds why the session failed, or None after a good end.

    It polls the machine after whatever comes and sets the session's one timer to the machine's next one, or the
    `follower`'s. `after_poll` is called after every poll. Nothing moves before `release`: no frame leaves before all
    links are open.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        *,
        follower: Follower | None = None,
        after_poll: Callable[[], None] | None = None,
    ) -> None:
        self.name, self.machine = name, machine
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[LocatedError | None] = self._loop.create_future()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._follower, self._after_poll = follower, after_poll
        self._upstream: dict[int, Upstream] = {}
        self._downstream: dict[int, Downstream] = {}
        self._inbox: list[tuple[int, Frame]] = []
        self._asks: list[tuple[int, int]] = []
        self._held = True
        self._turn_due = self._follower_waits = False
        self._timer: asyncio.Handle | None = None

    # -- links

    def attach_upstream(self, key: int, link: Upstream) -> None:
        """An incoming link is open."""
        self._upstream[key] = link

    def attach_downstream(self, key: int, link: Downstream) -> None:
        """The outgoing link that carries frames with `key`."""
        self._downstream[key] = link

    def received(self, key: int, frame: Frame) -> None:
        """A frame has come."""
        self._inbox.append((key, frame))
        if self._turn_due:
            return
        if len(self._upstream) == 1:  # nothing else can come in this iteration of the loop
            self._turn()
        else:
            self.wake()

    def asked(self, key: int, time_ns: int) -> None:
        """The far end of an outgoing link asks for a promise."""
        self._asks.append((key, time_ns))
        self.wake()

    # -- the session's life

    def wake(self) -> None:
        """Poll the machine in the next iteration of the loop."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def release(self) -> None:
        """Let the machine be polled."""
        self._held = False
        self.wake()

    def hold(self) -> None:
        """Do not poll until `release`: whoever takes the results has fallen behind."""
        self._held = True

    def fail(self, error: StagelineError) -> None:
        """End the session with an error; only the first one counts."""
        if not self.ended.done():
            located = locate(error, self.name)
            log.error("session failed", extra={"party": located.party, "error": str(located)})
            self._end(located)

    def close(self) -> None:
        """End the session well."""
        if not self.ended.done():
            self._end(None)

    async def over(self) -> None:
        """Return when the session has ended."""
        await asyncio.shield(self.ended)  # shielded, so that cancelling a waiter does not cancel the session

    async def machine_done(self) -> bool:
        """Return when the machine is done: True; or when the session has ended before: False."""
        await asyncio.wait((self._done, self.ended), return_when=asyncio.FIRST_COMPLETED)
        return self._done.done()

    @property
    def error(self) -> LocatedError | None:
        """Why the session failed, if it did."""
        return self.ended.result() if self.ended.done() else None

    def _end(self, error: LocatedError | None) -> None:
        self.ended.set_result(error)
        if self._timer is not None:
            self._timer.cancel()
        # All of these refer back to it: whoever lets go of the session frees it at once, with all that a run has left.
        self._upstream.clear()
        self._downstream.clear()
        self._follower = self._after_poll = None

    # -- driving the machine

    def _turn(self) -> None:
        """Feed the machine what has come, send what it gives, and set the timer."""
        self._turn_due = False
        if self._held or self.ended.done():
            return
        machine, now_ns = self.machine, time.monotonic_ns()
        try:
            (inbox, self._inbox), (asked, self._asks) = (self._inbox, []), (self._asks, [])
            for key, frame in inbox:
                machine.receive(key, frame)
            for key, time_ns in asked:
                machine.asked(key, time_ns)
            frames, asks = machine.poll(now_ns)
            for key, frame in frames:
                self._downstream[key].push(frame)
            for key, time_ns in asks:
                self._upstream[key].ask(time_ns)
            timer_ns = machine.next_timer_ns
            if self._follower is not None:
                timer_ns = min(timer_ns, self._follow(self._follower, now_ns, pushed=bool(frames)))
            if self._after_poll is not None:
                self._after_poll()
        except Exception as error:
            self._fail_of(error)
            return
        if machine.done and not self._done.done():
            self._done.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timer_ns <= now_ns:
            self._timer = self._loop.call_soon(self._turn)
        elif timer_ns < NEVER:
            self._timer = self._loop.call_later(max(TICK_NS, timer_ns - now_ns) / 1e9, self._turn)

    def _follow(self, follower: Follower, now_ns: int, *, pushed: bool) -> int:
        """Poll the follower if it is due; returns its next timer. The pipeline goes first: it waits for the loop's next
        iteration if frames were pushed, but once only.
        """
        if follower.next_timer_ns <= now_ns:
            if pushed and not self._follower_waits:
                self._follower_waits = True
                self.wake()
                return NEVER
            self._follower_waits = False
            follower.poll(now_ns)
        return follower.next_timer_ns

    def _fail_of(self, error: Exception) -> None:
        """End the session, not the process: a server stays up for the next one."""
        if isinstance(error, StagelineError):
            self.fail(error)
        elif isinstance(error, LawBroken):
            log.critical("a law is broken", exc_info=error)
            self.fail(StagelineError(f"a law of emulated time is broken, which is a bug: {error}"))
        else:
            log.critical("internal error", exc_info=error)
            self.fail(StagelineError(f"internal error: {type(error).__name__}: {error}"))
