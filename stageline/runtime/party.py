"""One party of a session, stage or router: drives its machine with whatever the links bring.

All frames and asks that come in one turn of the event loop go in first, then the machine is polled once: frames
coalesce by themselves, and because stamps are data that changes nothing in the result. A party with one incoming link
gets one frame a turn and is polled at once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from stageline.errors import LawBroken, StagelineError
from stageline.runtime.asking import Asking
from stageline.sync.frames import Frame
from stageline.wire.errors import LocatedError, locate
from stageline.wire.host import Downstream, Upstream

log = logging.getLogger(__name__)


class Machine(Protocol):
    """What a party drives. Keys name links: a stage's by their number, the router's by their replica."""

    def receive(self, key: int, frame: Frame) -> None:
        """Takes a frame from an incoming link."""
        ...

    def asked(self, key: int, time_ns: int) -> None:
        """The far end of an outgoing link wants a promise."""
        ...

    def promised_ns(self, key: int) -> int:
        """What the sender of an incoming link has promised so far."""
        ...

    def poll(self) -> tuple[Iterable[tuple[int, Frame]], Iterable[tuple[int, int]]]:
        """Frames for outgoing links, and (key, time) asks for incoming ones."""
        ...


class Party:
    """A machine between its links. `failed` holds the error that ended the session, `closed` its good end."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        after_turn: Callable[[], None] = lambda: None,
        before_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.machine = machine
        self.upstream: dict[int, Upstream] = {}
        self.downstream: dict[int, Downstream] = {}
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[LocatedError | None] = self._loop.create_future()
        self._after_turn, self._before_turn = after_turn, before_turn
        self._inbox: list[tuple[int, Frame]] = []
        self._asks: list[tuple[int, int]] = []
        self._asking = Asking(machine.promised_ns, lambda key, time_ns: self.upstream[key].ask(time_ns))
        self._held = True
        self._due = False
        self.ended.add_done_callback(lambda _: self._asking.close())

    def release(self) -> None:
        """Lets turns happen; a party is born held, so that no frame leaves before all links stand."""
        self._held = False
        self.wake()

    def hold(self) -> None:
        """Lets nothing happen until `release`: whoever takes the results has fallen behind."""
        self._held = True

    def received(self, key: int, frame: Frame) -> None:
        """A frame has come."""
        self._inbox.append((key, frame))
        if self._due:
            return
        if len(self.upstream) == 1:  # nothing else can come in this turn of the loop
            self._due = True
            self._turn()
        else:
            self.wake()

    def asked(self, key: int, time_ns: int) -> None:
        """The far end of an outgoing link asks for a promise."""
        self._asks.append((key, time_ns))
        if not self._due:
            self.wake()

    def wake(self) -> None:
        """Schedules a turn."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def fail(self, error: StagelineError) -> None:
        """Ends the session with an error; only the first one counts."""
        if not self.ended.done():
            located = locate(error, self.name)
            log.error("session failed", extra={"party": located.party, "error": str(located)})
            self.ended.set_result(located)

    def close(self) -> None:
        """Ends the session well."""
        if not self.ended.done():
            self.ended.set_result(None)

    async def over(self) -> None:
        """Returns when the session has ended. To wait for `ended` itself would end it, wrongly, with the waiter."""
        await asyncio.shield(self.ended)

    @property
    def error(self) -> LocatedError | None:
        """Why the session failed, if it did."""
        return self.ended.result() if self.ended.done() else None

    def _turn(self) -> None:
        self._due = False
        if self._held or self.ended.done():
            return
        try:
            self._drive()
        except StagelineError as error:
            self.fail(error)
        except LawBroken as error:
            log.critical("a law is broken", exc_info=True)
            self.fail(StagelineError(f"a law of emulated time is broken, which is a bug: {error}"))
        except Exception as error:
            log.critical("internal error", exc_info=True)
            self.fail(StagelineError(f"internal error: {type(error).__name__}: {error}"))

    def _drive(self) -> None:
        machine = self.machine
        inbox, self._inbox = self._inbox, []
        for key, frame in inbox:
            machine.receive(key, frame)
        if self._asks:
            asks, self._asks = self._asks, []
            for key, time_ns in asks:
                machine.asked(key, time_ns)
        self._before_turn()
        self._asking.turned()
        frames, wanted = machine.poll()
        for key, frame in frames:
            self.downstream[key].push(frame)
        for key, time_ns in wanted:
            self._asking.want(key, time_ns)
        self._after_turn()
