"""The scores of a search so far: every point at every length at which it was run, and the work that is left."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stageline.api.variations import Point

ALIKE = 1e-3  # relative: what differs by less tells no two points apart

Score = tuple[float, ...]  # greater is better


class Try(NamedTuple):
    """A design by number, and a point of its settings."""

    design: int
    point: Point


class Measured(NamedTuple):
    """What came of a try, and the work of running it, in any unit."""

    score: Score
    work: float


Measure = Callable[[Sequence[Try], int], Mapping[Try, Measured]]  # what can't be run is left out


def itself(t: Try) -> Try:
    """For a search that knows of no two points that run alike."""
    return t


class Scoreboard:
    """Scores by length. `measure` runs what is asked for the first time; `same` gives the one try that stands for all
    that are known to run alike. `left` is the work that is left, in full trials as those would be on average that are
    measured first.
    """

    def __init__(self, measure: Measure, same: Callable[[Try], Try], full: int, left: float) -> None:
        self._measure, self._same, self._full = measure, same, full
        self.left = left
        self._trial_work: float | None = None  # of a full trial on average; None: nothing was measured
        self._known: dict[int, dict[Try, Score]] = {}
        self._tried: dict[int, set[Try]] = {}

    def at(self, length: int, tries: Iterable[Try]) -> dict[Try, Score]:
        """Measures what was not measured at this length; returns the scores of all that were asked for."""
        asked = list(dict.fromkeys(map(self._same, tries)))
        known, tried = self._known.setdefault(length, {}), self._tried.setdefault(length, set())
        new = [t for t in asked if t not in tried]
        tried.update(new)
        found = self._measure(new, length) if new else {}
        self._charge(length, [m.work for m in found.values()])
        known.update({t: m.score for t, m in found.items()})
        return {t: known[t] for t in asked if t in known}

    def _charge(self, length: int, works: Sequence[float]) -> None:
        if self._trial_work is None and works:
            self._trial_work = max(sum(works) / len(works) * self._full / length, 1.0)
        self.left -= sum(works) / (self._trial_work or 1.0)

    def is_new(self, length: int, t: Try) -> bool:
        """Whether it was not asked for at this length."""
        return self._same(t) not in self._tried.get(length, ())

    def score(self, length: int, t: Try) -> Score:
        """Of a try that was measured."""
        return self._known[length][t]

    def ranked(self, length: int) -> list[Try]:
        """Best first, in a fixed order; of one design's tries that score alike, the best alone."""
        known = self._known.get(length, {})
        last: dict[int, Score] = {}
        found = []
        for t in sorted(known, key=lambda t: (tuple(-s for s in known[t]), t)):
            if t.design not in last or not alike(last[t.design], known[t]):
                found.append(t)
                last[t.design] = known[t]
        return found

    def idle(self, t: Try, axis: int, index: int, *, anywhere: bool = False) -> bool:
        """Whether changing an axis of `t` to this value was tried in its design (or in any), with whatever values of
        the other axes and at whatever length, and never told two scores apart.
        """
        values = (t.point[axis], index)
        seen = [
            alike(known[one], known[other])
            for known in self._known.values()
            for one in known
            if (anywhere or one.design == t.design) and one.point[axis] == values[0]
            for other in (moved(one, axis, values[1]),)
            if other in known
        ]
        return bool(seen) and all(seen)


def moved(t: Try, axis: int, index: int) -> Try:
    """A try with another value of one axis."""
    return Try(t.design, (*t.point[:axis], index, *t.point[axis + 1 :]))


def alike(one: Score, other: Score) -> bool:
    """Whether two scores differ by next to nothing."""
    return all(math.isclose(a, b, rel_tol=ALIKE) for a, b in zip(one, other, strict=True))
