"""The least of an error over shares and host times: a pattern search, by runs that each take a part of a second."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

MAX_RUNS = 300
MIN_SHARE = 0.02
STARTS = [(part, sequence_us) for part in (0.0, 0.25, 0.5) for sequence_us in (0.0, 40.0, 160.0)]
START_RUNS = 14  # of each start
KEPT = 3  # starts that are searched further
FIRST_FACTOR, LAST_FACTOR = 1.25, 1.004
STEP_US, SEQUENCE_US = 1600.0, 50.0  # that times move by when shares move by the first factor
ALMOST = 0.01  # of error above the least


class Point(NamedTuple):
    """What is searched."""

    flops: float  # share of peak FLOP/s
    bandwidth: float  # share of bandwidth
    step_us: float  # of host per step
    sequence_us: float  # of host per step and sequence


class Least(NamedTuple):
    """The best point, and between which bounds the points lie that are almost as good."""

    point: Point
    low: Point
    high: Point


class Move(NamedTuple):
    """One step along a direction: shares by `factor`, times by `steps` of their own."""

    factor: float
    steps: float
    weights_us: float  # a step that reads all weights, at the full bandwidth


Direction = Callable[[Point, Move], Point]


def least(error: Callable[[Point], float], start: Point, weights_us: float) -> Least:
    """The point with the least error, within about MAX_RUNS errors.

    A step that reads all weights takes `weights_us` at the full bandwidth. Most steps tell only the sum of that and of
    the time per step, and little of what each sequence adds. So the search begins from several splits of the sum; the
    most promising are searched in all directions, one of which moves the two against each other.
    """
    search = _Search(error, weights_us)
    begun = [_split(start, part, sequence_us, weights_us) for part, sequence_us in STARTS]
    rough = {search.down(point, (_flops, _floor), FIRST_FACTOR**0.5, START_RUNS) for point in begun}
    kept = sorted(rough, key=search.seen.__getitem__)[:KEPT]
    for i, point in enumerate(kept):
        runs = (MAX_RUNS - len(search.seen)) // (len(kept) - i)
        search.down(point, (_flops, _floor, _exchanged, _bandwidth, _step, _sequence), FIRST_FACTOR, runs)
    return search.best()


class _Search:
    """Errors that are known, and descents that find more."""

    def __init__(self, error: Callable[[Point], float], weights_us: float) -> None:
        self.seen: dict[Point, float] = {}
        self._error, self._weights_us = error, weights_us

    def down(self, start: Point, directions: Sequence[Direction], factor: float, runs: int) -> Point:
        """Try each direction up, else down; take finer steps when nothing improves, until `runs` are made."""
        best, lowest, end = start, self._of(start), len(self.seen) + runs
        while len(self.seen) < end and factor > LAST_FACTOR:
            before = lowest
            for moved in directions:
                for tried in (factor, 1 / factor):
                    point = moved(best, Move(tried, (tried - 1) / (FIRST_FACTOR - 1), self._weights_us))
                    if self._of(point) < lowest:
                        best, lowest = point, self._of(point)
                        break
            if lowest == before:
                factor **= 0.5
        return best

    def _of(self, point: Point) -> float:
        if point not in self.seen:
            self.seen[point] = self._error(point)
        return self.seen[point]

    def best(self) -> Least:
        """Of all that was tried."""
        point = min(self.seen, key=self.seen.__getitem__)
        close = [other for other, found in self.seen.items() if found <= self.seen[point] + ALMOST]
        return Least(point, Point(*map(min, zip(*close, strict=True))), Point(*map(max, zip(*close, strict=True))))


def _split(p: Point, part: float, sequence_us: float, weights_us: float) -> Point:
    """The same time of a step that reads all weights, `part` of which is the host's."""
    floor_us = weights_us / p.bandwidth + p.step_us
    bandwidth = _share(weights_us / (floor_us * (1 - part)))
    return p._replace(bandwidth=bandwidth, step_us=floor_us - weights_us / bandwidth, sequence_us=sequence_us)


def _flops(p: Point, by: Move) -> Point:
    return p._replace(flops=_share(p.flops * by.factor))


def _floor(p: Point, by: Move) -> Point:
    return p._replace(bandwidth=_share(p.bandwidth / by.factor), step_us=p.step_us * by.factor)


def _exchanged(p: Point, by: Move) -> Point:
    share = _share(p.bandwidth * by.factor)
    return p._replace(bandwidth=share, step_us=max(0.0, p.step_us + by.weights_us * (1 / p.bandwidth - 1 / share)))


def _bandwidth(p: Point, by: Move) -> Point:
    return p._replace(bandwidth=_share(p.bandwidth * by.factor))


def _step(p: Point, by: Move) -> Point:
    return p._replace(step_us=max(0.0, p.step_us + by.steps * STEP_US))


def _sequence(p: Point, by: Move) -> Point:
    return p._replace(sequence_us=max(0.0, p.sequence_us + by.steps * SEQUENCE_US))


def _share(value: float) -> float:
    return min(1.0, max(MIN_SHARE, value))
