"""The router's machine in wall time: it acts on what emulated time has come to, and says when to look again."""

from router.live.workload import LiveWorkload
from stageline.engine.types import NEVER
from stageline.sync.foresight import ForesightedConductor
from stageline.sync.frames import Frame
from stageline.sync.machine import Asks, Frames
from stageline.sync.realtime import LEAD_NS, LiveClock
from stageline.sync.router import Dispatched, RouterMachine

HOLD_LOOK_NS = 100_000_000  # while the clock stands still, its slip is brought up to date that often


class LiveMachine(RouterMachine):
    """A RouterMachine that tells its conductor how far emulated time has come. No window: frames leave when due.

    Emulated time stands still while a completion is more than `tolerance_ns` of wall time late: a host or a stage that
    hangs must not look like a slow cluster. `held` is that completion while the clock waits for it; NEVER: it runs.
    """

    def __init__(
        self,
        conductor: ForesightedConductor,
        workload: LiveWorkload,
        clock: LiveClock,
        tolerance_ns: int,
        dispatched: Dispatched | None = None,
    ) -> None:
        super().__init__(conductor, 0, dispatched, clock)
        self.held_ns = NEVER
        self._foresight, self._workload, self._clock = conductor, workload, clock
        self._tolerance_ns = int(tolerance_ns / clock.dilation)
        self._lead_ns = int(LEAD_NS / clock.dilation)
        self._due_ns = NEVER  # the completion whose frame was outstanding after the last poll
        self.told_ns = 0  # how far emulated time has come; it never falls back
        self._resumed_ns = -1  # it comes from there again: the clock waits until all that was before is done
        self._look_ns = NEVER  # when to decide again though nothing has come, in wall time
        self._changes = 0  # of the workload, as of the last decision
        self._told_free: dict[int, tuple[int, ...]] = {}  # what the stages of each replica have been told last
        self._waits_for_frames = True  # nothing is foreseen that could be acted on without them

    def resume_at(self, told_ns: int) -> None:
        """Begin with what was acted on before emulated time came to `told_ns`, unpaced. The clock goes on after it."""
        self.told_ns = self._resumed_ns = self._foresight.acted_ns = told_ns

    def stamp_ns(self, now_ns: int) -> int:
        """The arrival of whatever comes now. While the clock stands still, so do stamps."""
        self._stand_still(now_ns)
        self._tell_time(now_ns)
        return self._workload.edge_ns

    def poll(self, now_ns: int) -> tuple[Frames, Asks]:
        """See Machine. A frame that only confirms what was acted on is no news, unless it was waited for."""
        arrived = self._workload.changes != self._changes
        due = now_ns >= self._look_ns - LEAD_NS // 2
        self._stand_still(now_ns)
        if arrived or due or (self._confirmed and (self._waits_for_frames or self.held_ns < NEVER)):
            self._news = True
        if not self._news:
            effects = super().poll(now_ns)
        else:
            self._tell_time(now_ns)
            self._changes = self._workload.changes
            effects = super().poll(now_ns)
            self._set_look(now_ns)
        self._due_ns = self._foresight.overdue_ns
        # While the clock stands still nothing that is held back comes due.
        self.next_timer_ns = min(self.next_timer_ns, self._look_ns) if self.held_ns >= NEVER else self._look_ns
        return effects

    def _decide(self, frames: Frames, asks: Asks) -> None:
        """See RouterMachine. Stages of an idle pipeline are told whose KV is free: nothing else would tell them."""
        super()._decide(frames, asks)
        if self._foresight.router.sequences or self._closing:
            return
        for replica in self._replicas:
            free = tuple(replica.releases)
            if free and free != self._told_free.get(replica.index):
                self._told_free[replica.index] = free
                frames.append((replica.index, Frame([], 0, releases=free)))

    def _stand_still(self, now_ns: int) -> None:
        """Emulated time did not pass what was outstanding, though all of it may have come by now."""
        if self._due_ns < NEVER:
            self._clock.hold_at(max(self._due_ns + self._tolerance_ns, self.told_ns), now_ns)

    def _tell_time(self, now_ns: int) -> None:
        """Bring emulated time up to the wall, or to where it has to wait for a completion.

        After a gap in this process's own time a completion may not even be computed yet. Then time comes up in steps,
        as if the machine had been polled all along.
        """
        foresight, due_ns = self._foresight, -1
        if foresight.arrival_known and foresight.next_arrival_ns < self._resumed_ns:
            self._tell(self.told_ns)
            self._clock.hold_at(self.told_ns, now_ns)
            self.held_ns = foresight.next_arrival_ns
            return
        while True:
            before_ns, unknown_ns = due_ns, foresight.unknown_ns()
            known_ns = foresight.overdue_ns
            due_ns = min(known_ns, unknown_ns)
            latest_ns = max(due_ns + self._tolerance_ns, self.told_ns)
            emulated_ns = self._clock.at_ns(now_ns)
            self._tell(min(emulated_ns, latest_ns))
            if emulated_ns < latest_ns - self._lead_ns:
                self.held_ns = NEVER
                return
            if due_ns in (known_ns, before_ns):
                self._clock.hold_at(latest_ns, now_ns)
                self.held_ns = due_ns
                return
            foresight.advance()
            self._news = True

    def _tell(self, emulated_ns: int) -> None:
        self.told_ns = max(self.told_ns, emulated_ns)
        self._workload.move_to(self.told_ns)
        self._foresight.reached_ns = self.told_ns + self._lead_ns  # as far as pacing lets frames leave

    def _set_look(self, now_ns: int) -> None:
        """Look again when the wall opens what waits for the workload, or brings the next foreseen completion, or when a
        frame will be overdue.
        """
        foresight, workload, look_ns = self._foresight, self._workload, NEVER
        until_ns, foreseen_ns, overdue_ns = foresight.blocked_ns, foresight.foreseen_ns, foresight.overdue_ns
        if self.promise_wanted:
            until_ns = min(until_ns, workload.edge_ns + foresight.router.front_end_ns)
        if until_ns < NEVER:
            look_ns = self._clock.wall_ns(workload.edge_before(until_ns - foresight.router.front_end_ns))
        if foreseen_ns < NEVER:
            # Half the lead early: late enough to act on it, and early enough to be on time.
            look_ns = min(look_ns, self._clock.wall_ns(foreseen_ns) - LEAD_NS // 2)
        if self.held_ns < NEVER:
            look_ns = now_ns + HOLD_LOOK_NS  # nothing before it can be acted on
        elif overdue_ns < NEVER:
            look_ns = min(look_ns, self._clock.wall_ns(overdue_ns + self._tolerance_ns) + LEAD_NS)
        self._waits_for_frames = foreseen_ns >= NEVER
        self._look_ns = NEVER if self.done else max(now_ns + 1, look_ns)
