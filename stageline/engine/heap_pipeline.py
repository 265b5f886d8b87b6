"""The stages and links of one replica as one event heap: exact for every route, including those that revisit a stage.

Only arrivals at stages with several inputs go through the heap. A stage with one input serves in FIFO order, so a
microbatch is served there at once and moves on, down to the next shared stage or back to the router.
"""

import heapq
from collections.abc import Sequence as Seq

from stageline.engine.ledger import Ledger
from stageline.engine.link import Link
from stageline.engine.microbatch import Item
from stageline.engine.route import Route
from stageline.engine.stage import Stage
from stageline.engine.types import NEVER, StageObserver

ServiceTimes = dict[int, int]  # service times of one microbatch already computed, by cost entry
Event = tuple[int, int, int, Item, ServiceTimes]  # arrival, -visit, microbatch number, ...


class HeapPipeline:
    """One replica's stages and links. Replicas never share a stage, so an engine holds one pipeline for each."""

    def __init__(
        self,
        route: Route,
        replica: int,
        seed: int,
        observer: StageObserver | None = None,
        ledgers: Seq[Ledger] | None = None,
    ) -> None:
        """`ledgers`, by stage: the subclass that gives them applies the KV changes itself."""
        self.route, self.replica = route, replica
        own = [None] * len(route.plan.stages) if ledgers is None else ledgers
        self.stages = [Stage(route, s, replica, seed, observer, ledger) for s, ledger in enumerate(own)]
        self.links: list[Link] = [route.link(v, replica, seed) for v in range(1, route.visits + 1)]
        # Visits that share a cost entry take the same time unless randomness tells them apart.
        self._entry = [-1 - v if route.models[v].uses_draw else plan.cost for v, plan in enumerate(route.plan.visits)]
        shared = [not route.single_input(v) for v in range(route.visits)]
        self._first_shared = shared[0]
        # By visit: what its stage does, what the link after it does, its cost entry, whether the next stage is shared.
        self._hops = [
            (self.stages[s].occupy, link.send, entry, after)
            for s, link, entry, after in zip(route.stage_of, self.links, self._entry, (*shared[1:], False), strict=True)
        ]
        self._heap: list[Event] = []

    def feed(self, items: list[Item]) -> list[int]:
        """Take what the router dispatched; returns the completion times that are known at once, in order."""
        done = []
        for item in items:
            if self._first_shared:
                heapq.heappush(self._heap, (item.arrival_ns, 0, item.microbatch.number, item, {}))
            else:
                end = self._run(0, item, {})
                if end is not None:
                    done.append(end)
        return done

    @property
    def next_ns(self) -> int:
        """The earliest arrival that waits at a shared stage; NEVER when none does."""
        return self._heap[0][0] if self._heap else NEVER

    def step(self) -> int | None:
        """Serve the earliest arrival; returns its completion time if it went through to the router."""
        _, minus_visit, _, item, times = heapq.heappop(self._heap)
        return self._run(-minus_visit, item, times)

    def release(self, owners: tuple[int, ...]) -> None:
        """Apply the last releases, which come without a microbatch. Raises LawBroken when KV is still held."""
        for stage in self.stages:
            stage.ledger.close(owners)

    def _run(self, visit: int, item: Item, times: ServiceTimes) -> int | None:
        """Serve at `visit` and on through stages with one input; completion time, or None when queued again."""
        hops, last = self._hops, self.route.visits - 1
        microbatch = item.microbatch
        totals, number = microbatch.totals, microbatch.number
        tokens = totals.decode_tokens + totals.prefill_tokens
        while True:
            occupy, send, entry, shared_next = hops[visit]
            service = times.get(entry)
            if service is None:
                service = times[entry] = self.stages[self.route.stage_of[visit]].service_ns(visit, microbatch)
            trail = occupy(visit, item, service)
            if visit == last:
                return send(trail.prev_end_ns, totals.sampled, number)
            item = Item(send(trail.prev_end_ns, tokens, number), trail, microbatch)
            visit += 1
            if shared_next:
                heapq.heappush(self._heap, (item.arrival_ns, -visit, number, item, times))
                return None
