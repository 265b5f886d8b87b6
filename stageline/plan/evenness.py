"""How evenly a cut spreads time over the stages, and whether a similar number of stages would be more even."""

from collections.abc import Sequence
from typing import NamedTuple

from stageline.plan.partition import Fits, balanced

NEIGHBOURS = 3  # try up to this many stages fewer and more


class Cut(NamedTuple):
    """A number of stages, and how even their times are: 1 for equal times."""

    stages: int
    evenness: float


def evenness(times: Sequence[int]) -> float:
    """sum / (count x max): the share of the stages' time that a full pipeline is busy."""
    return sum(times) / (len(times) * max(times)) if any(times) else 1.0


def better_cut(layer_times: Sequence[int], now: Cut, fits: Fits) -> Cut | None:
    """The most even cut into about as many stages, if it is 2 % more even than `now`; fewer stages win ties."""
    best = None
    for stages in range(max(1, now.stages - NEIGHBOURS), min(len(layer_times), now.stages + NEIGHBOURS) + 1):
        cuts = balanced(layer_times, stages, fits)
        if cuts is None:
            continue
        found = Cut(stages, evenness([sum(layer_times[start:end]) for start, end in cuts]))
        if found.evenness > 1.02 * (best or now).evenness:
            best = found
    return best
