"""A cluster without a network: the synchronisation's machines, and frames and asks delivered in a random order."""

import random
from collections import deque
from collections.abc import Callable

from stageline.engine.conductor import Conductor
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.types import Observer, StageRecord
from stageline.sync.frames import Ask, Frame
from stageline.sync.router import RouterNode
from stageline.sync.stage import StageNode
from tests.reference.strategies import Scenario

Place = tuple[int, int]  # replica, link


class Stuck(Exception):
    """Nothing is on the way and the run is not over."""


class Parties:
    """Router and stages as independent parties. Every wire keeps its own order; which one delivers next is random."""

    def __init__(self, scenario: Scenario, observer: Observer, *, window_frames: int, delivery: int) -> None:
        self._random = random.Random(delivery)
        self.route = Route(scenario.plan)
        router = Router(self.route, scenario.scheduling, scenario.seed, observer)
        self.conductor = Conductor(router, scenario.workload())
        self.node = RouterNode(self.conductor, window_frames)
        replicas, links = range(scenario.plan.replicas), range(self.route.visits + 1)
        stages = range(len(scenario.plan.stages))
        self.stages = [[StageNode(self.route, r, s, scenario.seed) for s in stages] for r in replicas]
        self.frames: dict[Place, deque[Frame]] = {(r, v): deque() for r in replicas for v in links}
        self.asks: dict[Place, deque[Ask]] = {place: deque() for place in self.frames}
        self.most_in_a_frame = 0
        self.promise_frames = 0

    def run(self) -> list[StageRecord]:
        """To the end; the stages' records. Raises Stuck."""
        self._poll_router()
        while not self.node.done:
            ready: list[tuple[Callable[[int, int], None], Place]] = [
                (self._deliver, p) for p, w in self.frames.items() if w
            ]
            ready += [(self._ask, p) for p, w in self.asks.items() if w]
            if not ready:
                raise Stuck
            act, (replica, link) = self._random.choice(ready)
            act(replica, link)
        start = self.conductor.first_arrival_ns or 0
        end = max(start, self.conductor.last_completion_ns)
        return [node.stage.record(start, end) for row in self.stages for node in row]

    def _deliver(self, replica: int, link: int) -> None:
        wire = self.frames[replica, link]
        for _ in range(self._random.choice([1, len(wire)])):
            frame = wire.popleft()
            if link == self.route.visits:
                sequences = [i.microbatch.number for i in frame.items]
                arrivals_ns = [i.arrival_ns for i in frame.items]
                self.node.receive(replica, sequences, arrivals_ns, frame.promise_ns, frame.last)
            else:
                self.stages[replica][self.route.stage_of[link]].receive(frame)
        if link == self.route.visits:
            self._poll_router()
        else:
            self._poll_stage(replica, self.route.stage_of[link])

    def _ask(self, replica: int, link: int) -> None:
        ask = self.asks[replica, link].popleft()
        if link:
            stage = self.route.stage_of[link - 1]
            self.stages[replica][stage].asked(link, ask.time_ns)
            self._poll_stage(replica, stage)
        else:
            self.node.asked(replica, ask.time_ns)
            self._poll_router()

    def _poll_router(self) -> None:
        frames, asks = self.node.poll()
        for replica, frame in frames:
            self._send(replica, frame)
        for replica, ask in asks:
            self.asks[replica, self.route.visits].append(ask)

    def _poll_stage(self, replica: int, stage: int) -> None:
        frames, asks = self.stages[replica][stage].poll()
        for frame in frames:
            self._send(replica, frame)
        for ask in asks:
            self.asks[replica, ask.link].append(ask)

    def _send(self, replica: int, frame: Frame) -> None:
        self.most_in_a_frame = max(self.most_in_a_frame, len(frame.items))
        self.promise_frames += not frame.items and not frame.last
        self.frames[replica, frame.link].append(frame)
