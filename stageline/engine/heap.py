"""The stages of an in-process run as one event heap: exact for every route, also those that revisit a stage.

Only arrivals at stages with several inputs go through the heap; a stage with one input serves in FIFO order, so what
reaches it is served on the spot, down to the next shared stage or the router.
"""

import heapq

from stageline.engine.link import Link
from stageline.engine.microbatch import Item, Microbatch
from stageline.engine.route import Route
from stageline.engine.stage import Stage
from stageline.engine.types import NEVER, StageObserver

Times = dict[int, int]  # service times of one microbatch already computed, by cost entry
Event = tuple[int, int, int, int, int, Microbatch, Times]  # arrival, -visit, replica, sequence, previous end, ...


class HeapStages:
    """All stages and links of all replicas."""

    def __init__(self, route: Route, replicas: int, seed: int, observer: StageObserver | None = None) -> None:
        stages, visits = range(len(route.plan.stages)), range(1, route.visits + 1)
        self.route = route
        self.stages = [[Stage(route, s, r, seed, observer) for s in stages] for r in range(replicas)]
        self.links: list[list[Link]] = [[route.link(v, r, seed) for v in visits] for r in range(replicas)]
        self._single = [route.single_input(v) for v in range(route.visits)]
        # Visits that share a cost entry take the same time unless randomness tells them apart.
        self._entry = [-1 - v if route.models[v].uses_draw else plan.cost for v, plan in enumerate(route.plan.visits)]
        self._heap: list[Event] = []

    def feed(self, replica: int, items: list[Item]) -> list[int]:
        """Take what the router dispatched; returns completion times that are known at once, in order."""
        done = []
        for item in items:
            microbatch = item.microbatch
            if self._single[0]:
                end = self._run(replica, 0, item.arrival_ns, item.prev_end_ns, microbatch, {})
                if end is not None:
                    done.append(end)
            else:
                heapq.heappush(
                    self._heap, (item.arrival_ns, 0, replica, microbatch.number, item.prev_end_ns, microbatch, {})
                )
        return done

    @property
    def next_ns(self) -> int:
        """The earliest arrival that waits for its turn; NEVER when none does."""
        return self._heap[0][0] if self._heap else NEVER

    def step(self) -> tuple[int, int | None]:
        """Serve the earliest; returns its replica and its completion time if it went through to the router."""
        arrival, minus_visit, replica, _, prev_end, microbatch, times = heapq.heappop(self._heap)
        return replica, self._run(replica, -minus_visit, arrival, prev_end, microbatch, times)

    def release(self, replica: int, requests: tuple[int, ...]) -> None:
        """The last releases, in a frame without microbatches."""
        for stage in self.stages[replica]:
            stage.ledger.close(requests)

    def _run(
        self, replica: int, visit: int, arrival: int, prev_end: int, microbatch: Microbatch, times: Times
    ) -> int | None:
        """Serve at `visit` and on through stages with one input; completion time, or None when queued again."""
        stages, links, stage_of = self.stages[replica], self.links[replica], self.route.stage_of
        tokens, sequence, last = microbatch.totals.tokens, microbatch.number, self.route.visits - 1
        while True:
            stage, entry = stages[stage_of[visit]], self._entry[visit]
            service = times.get(entry)
            if service is None:
                service = times[entry] = stage.service_ns(visit, microbatch)
            prev_end = stage.occupy(visit, arrival, prev_end, microbatch, service)
            if visit == last:
                return links[visit].send(prev_end, microbatch.totals.sampled, sequence)
            arrival = links[visit].send(prev_end, tokens, sequence)
            visit += 1
            if not self._single[visit]:
                heapq.heappush(self._heap, (arrival, -visit, replica, sequence, prev_end, microbatch, times))
                return None
