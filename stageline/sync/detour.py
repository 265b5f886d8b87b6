"""Foresight (lookahead) of a stage that is visited again: when its own microbatches will be back.

Between two visits of a stage lie stages that only it feeds, if each of them has one input. What they do follows from
the plan and from what was sent, so the stage computes it and knows the order of its next visit's arrivals without
waiting for their frames. The frames must still come before the microbatches can be sent on: they carry the activations.
"""

from itertools import pairwise

from stageline.engine.microbatch import Microbatch
from stageline.engine.rng import STREAM_EXPERTS, draw_at, stream_key
from stageline.engine.route import Route


class Detour:
    """The visits after `first` and before `back`, both of one stage: a copy of those stages' clocks and links."""

    def __init__(self, route: Route, first: int, back: int, replica: int, seed: int) -> None:
        visits = range(first + 1, back)
        self._hops = [(route.models[v], stream_key(seed, STREAM_EXPERTS, replica, v), route.link(v + 1, replica, seed))
                      for v in visits]  # fmt: skip
        self._free_ns = [0 for _ in visits]

    def back(self, arrival_ns: int, prev_end_ns: int, microbatch: Microbatch) -> tuple[int, int]:
        """(arrival, end of the visit before) of a microbatch at the later visit, given its arrival after the first."""
        tokens, number = microbatch.totals.tokens, microbatch.number
        free_ns = self._free_ns
        for i, (model, key, link) in enumerate(self._hops):
            draw = draw_at(key, number) if model.uses_draw else 0
            prev_end_ns = free_ns[i] = max(free_ns[i], arrival_ns) + model.service_ns(microbatch.totals, draw)
            arrival_ns = link.send(prev_end_ns, tokens, number)
        return arrival_ns, prev_end_ns


def detours(route: Route, visits: tuple[int, ...], replica: int, seed: int) -> dict[int, Detour]:
    """By later visit: the detours of a stage that it can foresee."""
    return {
        back: Detour(route, first, back, replica, seed)
        for first, back in pairwise(visits)
        if all(route.single_input(v) for v in range(first + 1, back))
    }
