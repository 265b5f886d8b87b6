"""Foresight (lookahead) of a stage that is visited again: when its own microbatches will be back.

Between two visits of a stage lie stages that only it feeds, if each of them has one input. What they do follows from
the plan and from what was sent, so the stage computes it and knows the order of its next visit's arrivals without
waiting for their frames. The frames must still come before the microbatches can be sent on: they carry the activations.
"""

from itertools import pairwise

from stageline.engine.attribution import Lateness
from stageline.engine.microbatch import Item
from stageline.engine.rng import STREAM_EXPERTS, draw_at, stream_key
from stageline.engine.route import Route


class Detour:
    """The visits after `first` and before `back`, both of one stage: a copy of those stages' clocks and links."""

    def __init__(self, route: Route, first: int, back: int, replica: int, seed: int) -> None:
        visits = range(first + 1, back)
        self._hops = [
            (v, stream_key(seed, STREAM_EXPERTS, replica, v), route.link(v + 1, replica, seed)) for v in visits
        ]
        self._models, self._lateness = route.models, {v: Lateness((v,)) for v in visits}
        self._free_ns = dict.fromkeys(visits, 0)

    def back(self, item: Item) -> Item:
        """A microbatch as it reaches the later visit, given as it leaves the first."""
        microbatch, free_ns = item.microbatch, self._free_ns
        tokens, number = microbatch.totals.tokens, microbatch.number
        for visit, key, link in self._hops:
            model, free = self._models[visit], free_ns[visit]
            draw = draw_at(key, number) if model.uses_draw else 0
            service_ns = model.service_ns(microbatch.totals, draw)
            free_ns[visit] = end = max(free, item.arrival_ns) + service_ns
            trail = self._lateness[visit].pass_on(visit, item, item.arrival_ns - free, service_ns, end)
            item = Item(link.send(end, tokens, number), trail, microbatch)
        return item


def detours(route: Route, visits: tuple[int, ...], replica: int, seed: int) -> dict[int, Detour]:
    """By later visit: the detours of a stage that it can foresee."""
    return {
        back: Detour(route, first, back, replica, seed)
        for first, back in pairwise(visits)
        if all(route.single_input(v) for v in range(first + 1, back))
    }
