"""How much slower than the emulated cluster a live session runs.

`auto` is the smallest factor that this host is expected to sustain, from the routes of all pools and two costs measured
on the wire:

    lone trip: visits * HOP_S / trip         one microbatch alone; every hop waits for a wake-up
    full load: visits / busiest * BATCHED_HOP_S / cores   as many microbatches as the busiest stage takes

with trip the shortest time of a token through the pipeline and busiest the shortest time per microbatch of the busiest
stage; of several pools the longest lone trip and the sum of their loads. The larger one, rounded up to 1, 2 or 5 times
a power of ten, and never below 1.
"""

import math
import os
from collections.abc import Collection

from stageline.engine.route import Route
from stageline.errors import BadInput

HOP_S = 350e-6  # wall time of one hop of a lone microbatch, wake-up included
BATCHED_HOP_S = 60e-6  # CPU time of a microbatch-hop under load
MIN_DILATION, MAX_DILATION = 1e-3, 1e6


def parse_dilation(text: str, routes: Collection[Route], cores: int | None = None) -> float:
    """A factor, or `auto`. Raises BadInput."""
    if text == "auto":
        return auto_dilation(routes, cores or len(os.sched_getaffinity(0)))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not MIN_DILATION <= value <= MAX_DILATION:
        reason = "not a factor" if math.isnan(value) else f"not between {MIN_DILATION:g} and {MAX_DILATION:,.0f}"
        raise BadInput("--dilation", text, reason, "give auto, 1 for real time, or a factor such as 50")
    return value


def auto_dilation(routes: Collection[Route], cores: int) -> float:
    """The smallest factor that a host with so many cores sustains."""
    lone = max((route.visits + 1) * HOP_S / (route.trip_ns / 1e9) for route in routes)
    load = sum(_hops_per_s(route) * BATCHED_HOP_S / cores for route in routes)
    return _rounded_up(max(1.0, lone, load))


def _hops_per_s(route: Route) -> float:
    """Of all replicas at full load, in emulated time."""
    busiest_s = max(sum(route.min_service_ns[v] for v in visits) for visits in route.inputs) / 1e9
    return (route.visits + 1) / busiest_s * route.plan.replicas


def _rounded_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value * (1 - 1e-9))
