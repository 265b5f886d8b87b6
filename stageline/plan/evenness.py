"""How evenly a cut spreads time over the stages."""

from collections.abc import Sequence
from typing import NamedTuple


class Cut(NamedTuple):
    """A number of stages, and how even their times are: 1 for equal times."""

    stages: int
    evenness: float


def evenness(times: Sequence[int]) -> float:
    """sum / (count x max): the share of the stages' time that a full pipeline is busy."""
    return sum(times) / (len(times) * max(times)) if any(times) else 1.0
