"""A session without a network: its machines, with frames, asks and timers in a random order."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from stageline.engine.conductor import Conductor
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet
from stageline.engine.types import NEVER, Observer, StageRecord, Workload
from stageline.sync.frames import Frame
from stageline.sync.machine import Machine
from stageline.sync.router import RouterMachine
from stageline.sync.stage import StageMachine

Place = tuple[int, int]  # replica, link
TURN_NS = 1_000_000  # most wall time between two polls


class Stuck(Exception):
    """Nothing is on the way and the run is not over."""


class Session:
    """Router and stages without a network. Every wire keeps its own order; which one delivers next is random.

    So is the wall time that passes meanwhile, and whether a timer rings before or after what is on its way.
    """

    def __init__(
        self, fleet: ServedFleet, workload: Workload, observer: Observer, *, seed: int, window_frames: int,
        delivery: int,
    ) -> None:  # fmt: skip
        self._random = random.Random(delivery)
        self.routes = fleet.routes
        self.router = Router(fleet, seed, observer)
        self.conductor = Conductor(self.router, workload)
        self._router = RouterMachine(self.conductor, window_frames)
        self.stages = [
            [StageMachine(route, r, s, seed) for s in range(len(route.plan.stages))]
            for r, route in enumerate(self.routes)
        ]
        links = ((r, v) for r, route in enumerate(self.routes) for v in range(route.visits + 1))
        self._frames: dict[Place, deque[Frame]] = {place: deque() for place in links}
        self._asks: dict[Place, deque[int]] = {place: deque() for place in self._frames}
        self._now_ns = 0
        self.most_in_a_frame = 0
        self.promise_frames = 0

    def run(self) -> list[StageRecord]:
        """To the end; the stages' records. Raises Stuck."""
        self._poll(self._router, None)
        while not self._router.done:
            ready: list[Callable[[], None]] = [partial(self._deliver, p) for p, w in self._frames.items() if w]
            ready += [partial(self._ask, p) for p, w in self._asks.items() if w]
            ready += [partial(self._ring, m, r) for m, r in self._machines() if m.next_timer_ns < NEVER]
            if not ready:
                raise Stuck
            self._now_ns += self._random.randrange(TURN_NS)
            self._random.choice(ready)()
        start = self.conductor.first_arrival_ns or 0
        end = max(start, self.conductor.last_completion_ns)
        return [machine.stage.record(start, end) for row in self.stages for machine in row]

    def _machines(self) -> Iterator[tuple[Machine, int | None]]:
        """Each with its replica; the router has none."""
        yield self._router, None
        for replica, row in enumerate(self.stages):
            for machine in row:
                yield machine, replica

    def _end(self, replica: int, visit: int) -> tuple[Machine, int | None]:
        """Who serves a visit; the router stands before the first and after the last."""
        route = self.routes[replica]
        if 0 <= visit < route.visits:
            return self.stages[replica][route.stage_of[visit]], replica
        return self._router, None

    def _deliver(self, place: Place) -> None:
        wire, (replica, link) = self._frames[place], place
        machine, of = self._end(replica, link)
        for _ in range(self._random.choice([1, len(wire)])):
            machine.receive(replica if of is None else link, wire.popleft())
        self._poll(machine, of)

    def _ask(self, place: Place) -> None:
        replica, link = place
        machine, of = self._end(replica, link - 1)
        machine.asked(replica if of is None else link, self._asks[place].popleft())
        self._poll(machine, of)

    def _ring(self, machine: Machine, of: int | None) -> None:
        self._now_ns = max(self._now_ns, machine.next_timer_ns)
        self._poll(machine, of)

    def _poll(self, machine: Machine, of: int | None) -> None:
        frames, asks = machine.poll(self._now_ns)
        for key, frame in frames:
            self.most_in_a_frame = max(self.most_in_a_frame, len(frame.items))
            self.promise_frames += not frame.items and not frame.last
            self._frames[(key, 0) if of is None else (of, key)].append(frame)
        for key, time_ns in asks:
            self._asks[(key, self.routes[key].visits) if of is None else (of, key)].append(time_ns)
