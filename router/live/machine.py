"""The router's machine in wall time: it acts on what emulated time has come to, and says when to look again."""

import logging

from router.live.workload import LiveWorkload
from stageline.engine.types import NEVER
from stageline.sync.foresight import ForesightedConductor
from stageline.sync.machine import Asks, Frames
from stageline.sync.realtime import LEAD_NS, LiveClock
from stageline.sync.router import Dispatched, RouterMachine
from stageline.units import NS_PER_S

log = logging.getLogger(__name__)
_WARN_NS = 5 * NS_PER_S  # at most one warning about slipping in that time


class LiveMachine(RouterMachine):
    """A RouterMachine that tells its conductor how far emulated time has come. No window: frames leave when due.

    Emulated time waits for a completion that is more than `tolerance_ns` of wall time late: a slow host must not look
    like a slow cluster.
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
        self._foresight, self._workload, self._clock = conductor, workload, clock
        self._tolerance_ns = int(tolerance_ns / clock.dilation)
        self._lead_ns = int(LEAD_NS / clock.dilation)
        self._warned_ns: int | None = None
        self._look_ns = NEVER  # when to decide again though nothing has come, in wall time
        self._changes = 0  # of the workload, as of the last decision
        self._waits_for_frames = True  # nothing is foreseen that could be acted on without them

    def poll(self, now_ns: int) -> tuple[Frames, Asks]:
        """See Machine. A frame that only confirms what was acted on is no news, unless it was waited for."""
        arrived = self._workload.changes != self._changes
        due = now_ns >= self._look_ns - LEAD_NS // 2
        if arrived or due or (self._confirmed and self._waits_for_frames):
            self._news = True
        if not self._news:
            effects = super().poll(now_ns)
        else:
            self._tell_time(now_ns)
            effects = super().poll(now_ns)
            self._set_look(now_ns)
        self.next_timer_ns = min(self.next_timer_ns, self._look_ns)
        return effects

    def _tell_time(self, now_ns: int) -> None:
        foresight, workload = self._foresight, self._workload
        emulated_ns = self._clock.at_ns(now_ns)
        latest_ns = max(foresight.overdue_ns + self._tolerance_ns, workload.edge_ns)
        if emulated_ns > latest_ns:
            emulated_ns = latest_ns
            self._slip(latest_ns, now_ns)
        workload.move_to(emulated_ns)
        self._changes = workload.changes
        foresight.reached_ns = emulated_ns + self._lead_ns  # as far as pacing lets frames leave

    def _slip(self, emulated_ns: int, now_ns: int) -> None:
        slipped_ns = self._clock.hold_at(emulated_ns, now_ns)
        if slipped_ns and (self._warned_ns is None or now_ns - self._warned_ns > _WARN_NS):
            self._warned_ns = now_ns
            total_s = self._clock.slip_ns / NS_PER_S
            log.warning("this host is too slow for the dilation: the emulated clock slips", extra={"slip_s": total_s})

    def _set_look(self, now_ns: int) -> None:
        """Look again when the wall opens what waits for the workload, or brings the next foreseen completion."""
        foresight, workload, look_ns = self._foresight, self._workload, NEVER
        until_ns, foreseen_ns = foresight.blocked_ns, foresight.foreseen_ns
        if self.promise_wanted:
            until_ns = min(until_ns, workload.edge_ns)
        if until_ns < NEVER:
            look_ns = self._clock.wall_ns(workload.edge_before(until_ns))
        if foreseen_ns < NEVER:
            # Half the lead early: late enough to act on it, and early enough to be on time.
            look_ns = min(look_ns, self._clock.wall_ns(foreseen_ns) - LEAD_NS // 2)
        self._waits_for_frames = foreseen_ns >= NEVER
        self._look_ns = NEVER if self.done else max(now_ns + 1, look_ns)
