"""Finds out which stage hangs: it does not close a connection, it only owes an answer or a frame."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from router.cluster.stages import RemoteStage, StageTable
from stageline.engine.types import NEVER
from stageline.errors import Unavailable
from stageline.sync.realtime import LiveClock
from stageline.sync.router import RouterMachine
from stageline.sync.silence import Silence
from stageline.units import NS_PER_S
from stageline.wire.errors import LocatedError

log = logging.getLogger(__name__)
DEADLINE_NS = 10 * NS_PER_S
TICK_NS = NS_PER_S // 4
NOTICE_NS = NS_PER_S  # what is owed for that long is said, and /ready fails
_WARN_NS = 5 * NS_PER_S  # at most one warning about slipping in that time
_BEAT_NS = NS_PER_S  # between a stage's answer and the next question, while all goes well
FRAME = "frame"


class Watchdog:
    """Asks every stage for a sign of life as long as a session is open, and watches for overdue frames of a live one,
    whose `clock` it is given.

    `lost` is called once with the stage, or the pipeline, that owed something for `deadline_ns`.
    """

    def __init__(
        self, table: StageTable, machine: RouterMachine, clock: LiveClock | None, deadline_ns: int,
        lost: Callable[[LocatedError], None],
    ) -> None:  # fmt: skip
        self._table, self._machine, self._clock = table, machine, clock
        self._deadline_ns, self._lost = deadline_ns, lost
        self._silence = Silence[RemoteStage | str](2 * TICK_NS)
        self._beats: dict[RemoteStage, asyncio.Task[None]] = {}
        self._answered_ns: dict[RemoteStage, int] = {}
        self._noticed: dict[RemoteStage | str, int] = {}  # what has been said, with how long it was owed then
        self._blamed: dict[str, None] = {}  # stages that were silent since the last word about the slip
        self._slip_ns = clock.slip_ns if clock else 0  # as of the last word
        self._warned_ns: int | None = None

    @property
    def reason(self) -> str:
        """Why the cluster is stuck; empty: it is not."""
        parts = [f"{_name(who)} for {owed_ns / NS_PER_S:.0f} s" for who, owed_ns in self._stuck()]
        return f"owed: {', '.join(parts)}" if parts else ""

    def owed_ns(self, stage: RemoteStage) -> int:
        """For how long the stage has owed an answer; 0: it does not hang."""
        owed_ns = self._silence.owed_ns.get(stage, 0)
        return owed_ns if owed_ns >= NOTICE_NS else 0

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                self._tick(time.monotonic_ns())
                await asyncio.sleep(TICK_NS / NS_PER_S)
        finally:
            for beat in self._beats.values():
                beat.cancel()
            await asyncio.gather(*self._beats.values(), return_exceptions=True)

    def _tick(self, now_ns: int) -> None:
        held_ns = self._machine.held_ns
        debts: dict[RemoteStage | str, object] = {stage: beat for stage, beat in self._beats.items() if not beat.done()}
        if held_ns < NEVER:
            debts[FRAME] = held_ns
        self._silence.tick(now_ns, debts)
        for stage in self._table:
            self._beat(stage, now_ns, hurry=held_ns < NEVER)
        for who, owed_ns in self._silence.owed_ns.items():
            if isinstance(who, RemoteStage) and owed_ns >= TICK_NS:
                self._blamed[who.name] = None
        self._say()
        self._say_slip(now_ns, held=held_ns < NEVER)
        late = [who for who, owed_ns in self._stuck() if owed_ns >= self._deadline_ns]
        if late:
            self._give_up(late[0])

    def _beat(self, stage: RemoteStage, now_ns: int, *, hurry: bool) -> None:
        beat = self._beats.get(stage)
        if beat is not None and beat.done():
            del self._beats[stage]
            self._answered_ns[stage] = now_ns
            beat = None
        if beat is None and (hurry or now_ns - self._answered_ns.get(stage, -_BEAT_NS) >= _BEAT_NS):
            self._beats[stage] = asyncio.create_task(stage.answers())

    def _stuck(self) -> list[tuple[RemoteStage | str, int]]:
        """What has been owed for long; a silent stage explains an overdue frame."""
        owed_ns = self._silence.owed_ns
        frame_ns = owed_ns.get(FRAME, 0)
        suspicious_ns = 2 * TICK_NS if frame_ns >= NOTICE_NS else NOTICE_NS
        stuck = [(who, ns) for who, ns in owed_ns.items() if who != FRAME and ns >= suspicious_ns]
        if not stuck and frame_ns >= NOTICE_NS:
            stuck.append((FRAME, frame_ns))
        return stuck

    def _say(self) -> None:
        stuck = dict(self._stuck())
        for who, owed_ns in stuck.items():
            if who not in self._noticed:
                since = datetime.now(UTC).timestamp() - owed_ns / NS_PER_S
                when = datetime.fromtimestamp(since, UTC).isoformat(timespec="milliseconds")
                held_ns = self._machine.held_ns
                frame = {"emulated_ns": held_ns} if held_ns < NEVER else {}  # else nothing but the answer is owed
                log.warning("%s is overdue", _name(who), extra={"since": when, **frame})
            self._noticed[who] = owed_ns
        for who in [who for who in self._noticed if who not in stuck]:
            owed_s = self._noticed.pop(who) / NS_PER_S
            log.warning("%s has come", _name(who), extra={"waited_s": round(owed_s, 1)})

    def _say_slip(self, now_ns: int, *, held: bool) -> None:
        """Say whom the clock waited for: once it goes on, and not all the time."""
        if self._clock is None or held or self._clock.slip_ns == self._slip_ns:
            if not held:
                self._blamed.clear()
            return
        if self._warned_ns is not None and now_ns - self._warned_ns < _WARN_NS and not self._blamed:
            return
        waited_s = (self._clock.slip_ns - self._slip_ns) / NS_PER_S
        extra = {"waited_s": round(waited_s, 3), "slip_s": self._clock.slip_ns / NS_PER_S}
        if self._blamed:
            log.warning("the emulated clock waited for %s", ", ".join(self._blamed), extra=extra)
        else:
            log.warning("this host is too slow for the dilation: the emulated clock slips", extra=extra)
        self._slip_ns, self._warned_ns = self._clock.slip_ns, now_ns
        self._blamed.clear()

    def _give_up(self, who: RemoteStage | str) -> None:
        deadline_s = self._deadline_ns / NS_PER_S
        if isinstance(who, RemoteStage):
            who.give_up()
            reason, party = f"{who.place} has not answered for {deadline_s:g} s and counts as lost", who.name
        else:
            reason = f"a frame has been overdue for {deadline_s:g} s, though every stage answers"
            party = "the router"
        self._lost(LocatedError(Unavailable(reason), party))


def _name(who: RemoteStage | str) -> str:
    return f"an answer of {who.place}" if isinstance(who, RemoteStage) else "a frame, though every stage answers,"
