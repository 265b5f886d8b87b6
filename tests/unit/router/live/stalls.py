"""A live cluster without wall time: its machines, a clock set by hand, and processes that stall."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from router.live.machine import LiveMachine
from router.live.workload import LiveWorkload
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet
from stageline.engine.types import NEVER, Observer, Request
from stageline.sync.foresight import ForesightedConductor
from stageline.sync.frames import Frame
from stageline.sync.machine import Machine
from stageline.sync.realtime import LiveClock
from stageline.sync.stage import StageMachine

MS = 1_000_000
HOP_NS = 200_000  # what a message takes in wall time
TOLERANCE_NS = 20 * MS
QUANTUM_NS = MS


class Stall(NamedTuple):
    """A process does nothing for a time: stage `who`, or the router if it is -1."""

    who: int
    start_ns: int
    length_ns: int


class Process:
    """One machine with what it has been sent, as its shell drives it."""

    def __init__(self, machine: Machine, stalls: Sequence[Stall]) -> None:
        self.machine = machine
        self.inbox: list[tuple[int, Frame]] = []
        self.asks: list[tuple[int, int]] = []
        self._stalls = sorted(stalls, key=lambda stall: stall.start_ns)
        self.wakes_ns = NEVER  # the poll that is planned

    def awake_ns(self, wall_ns: int) -> int:
        """The first time from `wall_ns` on at which it is not stalled."""
        for stall in self._stalls:
            if stall.start_ns <= wall_ns < stall.start_ns + stall.length_ns:
                wall_ns = stall.start_ns + stall.length_ns
        return wall_ns

    def turn(self, wall_ns: int) -> tuple[list[tuple[int, Frame]], list[tuple[int, int]]]:
        """See SessionShell."""
        for key, frame in self.inbox:
            self.machine.receive(key, frame)
        for key, time_ns in self.asks:
            self.machine.asked(key, time_ns)
        self.inbox, self.asks = [], []
        return self.machine.poll(wall_ns)


class Cluster:
    """Router and stages. `at(wall, action)` happens then, if the router is awake, or once it is."""

    def __init__(
        self, fleet: ServedFleet, observer: Observer, stalls: Sequence[Stall] = (), before: "Cluster | None" = None
    ) -> None:
        self.fleet, self.wall_ns = fleet, before.wall_ns if before else 0
        self.clock = before.clock if before else LiveClock(0, 1.0, 0)
        self.workload = LiveWorkload(QUANTUM_NS, 1.0)
        self.arrived: list[Request] = before.arrived if before else []
        if before:
            self.workload.resume([(request.arrival_ns, request) for request in self.arrived], before.workload.edge_ns)
        self.router = Router(fleet, 0, observer)
        self.conductor = ForesightedConductor(self.router, self.workload, 0, None, TOLERANCE_NS)
        self.machine = LiveMachine(self.conductor, self.workload, self.clock, TOLERANCE_NS)
        if before:
            self.machine.resume_at(before.machine.told_ns)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._places = [(r, s) for r, route in enumerate(fleet.routes) for s in range(len(route.plan.stages))]
        self.stages = [StageMachine(fleet.route(r), r, s, 0, clock=LiveClock(0, 1.0, 0)) for r, s in self._places]
        machines: list[Machine] = [*self.stages, self.machine]
        self._processes = [
            Process(machine, [stall for stall in stalls if stall.who % len(machines) == who])
            for who, machine in enumerate(machines)
        ]

    def again_after(self, pause_ns: int, observer: Observer) -> "Cluster":
        """Its stages are lost; after that time others replay what was, under the same clock."""
        self.machine.stamp_ns(self.wall_ns)
        self.wall_ns += pause_ns
        found = Cluster(self.fleet, observer, before=self)
        found.clock.hold_at(found.machine.told_ns, found.wall_ns)
        found._plan(len(found.stages), found.wall_ns)
        return found

    def at(self, wall_ns: int, action: Callable[[], None]) -> None:
        """Plan what the router does then."""
        heapq.heappush(self._events, (self._processes[-1].awake_ns(wall_ns), next(self._order), action))

    def submit(self, prompt_tokens: int, output_tokens: int) -> int:
        """A request comes now; its arrival."""
        arrival_ns = self.machine.stamp_ns(self.wall_ns)
        request = Request(
            index=len(self.arrived), arrival_ns=arrival_ns, prompt_tokens=prompt_tokens,
            output_tokens=output_tokens, max_output_tokens=output_tokens,
        )  # fmt: skip
        self.arrived.append(request)
        self.workload.put(arrival_ns, request)
        self._plan(len(self.stages), self.wall_ns)
        return arrival_ns

    def run(self, until: Callable[[], bool]) -> None:
        """Let things happen until that is so."""
        turns = 0
        while not until():
            self.wall_ns, _, action = heapq.heappop(self._events)
            action()
            turns += 1
            assert turns < 20_000, "it does not end"

    def _plan(self, who: int, wall_ns: int) -> None:
        process = self._processes[who]
        wall_ns = process.awake_ns(wall_ns)
        if wall_ns < process.wakes_ns:
            process.wakes_ns = wall_ns
            heapq.heappush(self._events, (wall_ns, next(self._order), lambda: self._turn(who, wall_ns)))

    def _turn(self, who: int, wall_ns: int) -> None:
        process = self._processes[who]
        if process.wakes_ns != wall_ns:
            return  # another poll came first
        process.wakes_ns = NEVER
        frames, asks = process.turn(wall_ns)
        for key, frame in frames:
            reader, at = self._reader(*self._link(who, key, 0))
            self._send(reader, lambda p, at=at, frame=frame: p.inbox.append((at, frame)))
        for key, time_ns in asks:
            writer, at = self._writer(*self._link(who, key, -1))
            self._send(writer, lambda p, at=at, time_ns=time_ns: p.asks.append((at, time_ns)))
        if process.machine.next_timer_ns < NEVER:
            self._plan(who, max(wall_ns + 1, process.machine.next_timer_ns))

    def _send(self, who: int, put: Callable[[Process], None]) -> None:
        def arrive() -> None:
            put(self._processes[who])
            self._plan(who, self.wall_ns)

        heapq.heappush(self._events, (self.wall_ns + HOP_NS, next(self._order), arrive))

    def _link(self, who: int, key: int, of_router: int) -> tuple[int, int]:
        """Replica and link that a machine means by a key; the router's are replicas, its link the given one."""
        if who < len(self.stages):
            return self._places[who][0], key
        return key, of_router % (self.fleet.route(key).visits + 1)

    def _reader(self, replica: int, link: int) -> tuple[int, int]:
        """Who receives from a link, and by which key."""
        route = self.fleet.route(replica)
        if link == route.visits:
            return len(self.stages), replica
        return self._places.index((replica, route.stage_of[link])), link

    def _writer(self, replica: int, link: int) -> tuple[int, int]:
        """Who sends on a link, and by which key."""
        if not link:
            return len(self.stages), replica
        return self._places.index((replica, self.fleet.route(replica).stage_of[link - 1])), link
