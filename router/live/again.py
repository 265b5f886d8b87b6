"""A live session that is done again after the loss of a stage: what came, what was shown, and what waits meanwhile."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable

from router.live.attempt import Attempt, Event, Eyes, Ground, Past
from stageline.engine.microbatch import Item
from stageline.engine.sequence import Sequence
from stageline.engine.types import Cancellation, Observer, Request, RequestRecord
from stageline.errors import StagelineError
from stageline.sync.resumed import Resumed

log = logging.getLogger(__name__)
MAX_EVENTS = 100_000  # of a session that can be done again: they are kept in memory, and all are replayed


class HoldBack:
    """An Observer that keeps what it sees while it is `holding`, and passes it on, in order, at `release`.

    Replicas do not catch up at the same moment, and until all have, the figures of the session are those of the attempt
    before, which knows nothing of what is new. `sequences`: those of the tokens that it keeps.
    """

    def __init__(self, observer: Observer) -> None:
        self.holding = False
        self.sequences: dict[int, Sequence] = {}
        self._observer = observer
        self._kept: list[Callable[[], None]] = []
        self._find: Callable[[int], Sequence] = self.sequences.__getitem__

    def hold(self, find: Callable[[int], Sequence]) -> None:
        """Keep what comes; `find` gives the sequence of a request that has not ended."""
        self.holding, self._find = True, find

    def release(self) -> None:
        """Pass on what was kept, and all that follows."""
        kept, self._kept, self.holding = self._kept, [], False
        for call in kept:
            call()
        self.sequences.clear()

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        if self.holding:
            self.sequences[index] = self._find(index)
            self._kept.append(lambda: self._observer.token(index, now_ns, since_ns))
        else:
            self._observer.token(index, now_ns, since_ns)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        if self.holding:
            self._kept.append(lambda: self._observer.request(record))
        else:
            self._observer.request(record)


class Journal:
    """The events of a session, in memory; from MAX_EVENTS on it keeps none, and the session can't be done again."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.full = False

    def add(self, at_ns: int, event: Request | Cancellation) -> None:
        """An event with its stamp."""
        if self.full:
            return
        self.events.append((at_ns, event))
        if len(self.events) > MAX_EVENTS:
            self.full = True
            self.events.clear()
            log.warning("the live session can't be done again any more: it is too long", extra={"events": MAX_EVENTS})


class Retries:
    """What a session with `session_retries` keeps, and its attempts after the first one.

    A new attempt shows nothing new before it has been through all that the one before had: until then it is `held`.
    """

    def __init__(self, observer: Observer, dispatched: Callable[[int, Iterable[Item]], None] | None) -> None:
        self.journal = Journal()
        self.held = HoldBack(observer)
        self.observer = Resumed(self.held)
        self.made = 0  # attempts after the first one that were opened
        self._dispatched = dispatched
        self._next: dict[int, int] = {}  # number of the next microbatch to tell of, by replica

    def dispatched(self, replica: int, items: Iterable[Item]) -> None:
        """Tell of every microbatch once."""
        first = self._next.get(replica, 0)
        new = [item for item in items if item.microbatch.number >= first]
        if new and self._dispatched is not None:
            self._next[replica] = new[-1].microbatch.number + 1
            self._dispatched(replica, new)

    def attempt(self, ground: Ground, eyes: Eyes, before: Attempt) -> Attempt:
        """The next one, which has yet to be opened."""
        self.observer.begin()
        past = Past(self.journal.events, before.machine.told_ns, before.workload.edge_ns)
        attempt = Attempt(uuid.uuid4().hex, ground, eyes, past)
        self.held.hold(attempt.router.sequences.__getitem__)
        return attempt


async def replayed(attempt: Attempt, caught_up: "asyncio.Future[None]") -> None:
    """Return when it has caught up. Raises the StagelineError that ended it."""
    attempt.shell.release()
    await asyncio.wait((caught_up, attempt.shell.ended), return_when=asyncio.FIRST_COMPLETED)
    if not caught_up.done():
        raise await attempt.connections.failure() if attempt.shell.error else StagelineError("the session was closed")
