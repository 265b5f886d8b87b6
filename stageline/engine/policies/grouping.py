"""Which microbatches a serving engine forms at an instant, and which sequences may join each (rule 5).

A replica asks `attempts` at an instant at which its engine looks at its work. For every group that comes out it forms a
microbatch, if anybody can join, before it asks for the next.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator

from stageline.engine.sequence import Sequence


class Grouping(ABC):
    """The groups of one replica; `group` is the one that forms now: a step, a slot or a virtual engine.

    `slots` is the most microbatches in flight, `largest` the most sequences in one, `max_running` the limit on admitted
    sequences.
    """

    own_loops = False  # whether each group forms at arrivals too; else all form at returns while anything is in flight
    younger_victims = False  # whether a sequence preempts younger ones only
    own_queues = False  # whether each group has a queue of its own

    def __init__(self, slots: int, largest: int, max_running: int) -> None:
        self.slots, self.largest, self.max_running = slots, largest, max_running
        self.in_flight: deque[int] = deque()  # groups of the microbatches in flight, oldest first
        self.group = 0

    @abstractmethod
    def attempts(self) -> Iterator[int]:
        """Groups that may form now, in order. Sees in `in_flight` whether the last one did."""

    def may_decode(self, sequence: Sequence) -> bool:
        """Whether a ready sequence may join with its decode step."""
        return True

    def may_prefill(self, sequence: Sequence) -> bool:
        """Whether a running sequence may join with a chunk of its prompt."""
        return True

    def may_admit(self, running: int) -> bool:
        """Whether one more waiting sequence may join; `running` sequences run at the replica."""
        return running < self.max_running

    def was_there(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence had come when the microbatch was chosen."""
        return True

    def arrived(self, sequence: Sequence) -> None:  # noqa: B027 - most groupings need not know
        """A request was bound to the replica."""

    def left(self, sequence: Sequence) -> None:  # noqa: B027 - most groupings need not know
        """A request left the replica."""

    def admitted(self, sequence: Sequence) -> None:  # noqa: B027 - most groupings need not know
        """A waiting sequence joins the group."""

    def received(self, sequence: Sequence) -> None:
        """A hand-over is held from now on: it runs, though it joined no group's microbatch."""
        self.admitted(sequence)

    def stopped(self, sequence: Sequence) -> None:  # noqa: B027 - most groupings need not know
        """A running sequence has ended, was preempted, or goes on elsewhere."""

    def dispatched(self, members: list[tuple[Sequence, int]]) -> None:
        """The group's microbatch leaves; members come with the rows that are sampled for them."""
        self.in_flight.append(self.group)

    def returned(self) -> None:
        """The oldest microbatch is back."""
        self.in_flight.popleft()


class OneForAll(Grouping):
    """Whoever is ready goes into the next microbatch."""

    def attempts(self) -> Iterator[int]:
        """Until all slots are taken or nobody can join."""
        before = -1
        while before < len(self.in_flight) < self.slots:
            before = len(self.in_flight)
            yield 0


class Cadence(Grouping):
    """Numbered steps; who sampled in step n decodes again in step n + slots or later.

    A step is chosen as the one before it leaves: it admits who waited then, into places that were free then.
    """

    younger_victims = True

    def __init__(self, slots: int, largest: int, max_running: int) -> None:
        super().__init__(slots, largest, max_running)
        self._last = 0  # number of the last step that left
        self._choices = 0  # steps chosen so far
        self._running = 0
        self._places = max_running  # that the chosen step may still fill

    def attempts(self) -> Iterator[int]:
        """Every step of which the one `slots` steps older is back."""
        in_flight = self.in_flight
        if not in_flight:
            for step in range(self._last + 1, self._last + 2 + self.slots):
                yield step
                self._choose_next()
                if in_flight:
                    self._last = step
                    break
            else:
                return
        while in_flight[0] > self._last + 1 - self.slots:
            self._last += 1
            yield self._last
            self._choose_next()

    def may_decode(self, sequence: Sequence) -> bool:
        """By the step that last sampled for it."""
        return sequence.group is None or sequence.group <= self.group - self.slots

    def may_admit(self, running: int) -> bool:
        """Into a place that was free when the step was chosen."""
        return self._places > 0 and running < self.max_running

    def was_there(self, sequence: Sequence) -> bool:
        """By the choices made before it came."""
        return sequence.waits_since < self._choices

    def arrived(self, sequence: Sequence) -> None:
        """See Grouping."""
        sequence.waits_since = self._choices

    def admitted(self, sequence: Sequence) -> None:
        """See Grouping."""
        self._running += 1
        self._places -= 1

    def received(self, sequence: Sequence) -> None:
        """It takes none of the places of the chosen step."""
        self._running += 1

    def stopped(self, sequence: Sequence) -> None:
        """See Grouping."""
        self._running -= 1
        sequence.waits_since = self._choices

    def dispatched(self, members: list[tuple[Sequence, int]]) -> None:
        """Chunks that sample nothing have no cadence."""
        super().dispatched(members)
        for sequence, rows in members:
            if rows:
                sequence.group = self.group

    def _choose_next(self) -> None:
        self._choices += 1
        self._places = self.max_running - self._running


class Turns(Grouping):
    """Slots with running sequences of their own, which take turns."""

    younger_victims = True

    def __init__(self, slots: int, largest: int, max_running: int) -> None:
        super().__init__(slots, largest, max_running)
        self._turn = 0
        self._running = [0] * slots

    def attempts(self) -> Iterator[int]:
        """From the slot whose turn it is, passing over empty ones, to the first that is in flight."""
        turn, passed = self._turn, 0
        while passed < self.slots:
            if turn in self.in_flight:
                self._turn = turn
                return
            yield turn
            passed = 0 if turn in self.in_flight else passed + 1
            turn = (turn + 1) % self.slots

    def may_decode(self, sequence: Sequence) -> bool:
        """Its own only."""
        return sequence.group == self.group

    def may_prefill(self, sequence: Sequence) -> bool:
        """Its own only."""
        return sequence.group == self.group

    def may_admit(self, running: int) -> bool:
        """The slot's own limit and everybody's."""
        return self._running[self.group] < self.largest and running < self.max_running

    def admitted(self, sequence: Sequence) -> None:
        """See Grouping."""
        sequence.group = self.group
        self._running[self.group] += 1

    def received(self, sequence: Sequence) -> None:
        """In the slot with the fewest running sequences."""
        sequence.group = self._running.index(min(self._running))
        self._running[sequence.group] += 1

    def stopped(self, sequence: Sequence) -> None:
        """See Grouping."""
        if sequence.group is not None:
            self._running[sequence.group] -= 1


class VirtualEngines(Turns):
    """Engines with queue, running sequences and limit of their own; a request goes to the one with the fewest."""

    own_loops = own_queues = True

    def __init__(self, slots: int, largest: int, max_running: int) -> None:
        super().__init__(slots, largest, max_running)
        self._requests = [0] * slots

    def attempts(self) -> Iterator[int]:
        """Every engine that has nothing in flight."""
        for engine in range(self.slots):
            if engine not in self.in_flight:
                yield engine

    def may_admit(self, running: int) -> bool:
        """The engine's own limit."""
        return self._running[self.group] < self.max_running

    def received(self, sequence: Sequence) -> None:
        """In the engine whose queue it was in."""
        if sequence.group is not None:
            self._running[sequence.group] += 1

    def arrived(self, sequence: Sequence) -> None:
        """See Grouping."""
        sequence.group = self._requests.index(min(self._requests))
        self._requests[sequence.group] += 1

    def left(self, sequence: Sequence) -> None:
        """See Grouping."""
        if sequence.group is not None:
            self._requests[sequence.group] -= 1
