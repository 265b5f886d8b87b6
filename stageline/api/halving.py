"""Successive halving over the length of a workload: many points on its beginning, few on all of it.

A point is a design (what to run on) and a choice for every axis of settings. The beginning of a workload ranks points
roughly, which is enough to leave most of them out; only what is run in full is a result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stageline.api.variations import Point, spread, star

IN_FULL = 12  # points that are few enough to run all of them in full
PROBES = 3  # of every design at first: the first, the middle and the last values of all axes
SHARES = (16, 4)  # a short and a medium trial have these parts of the requests
DESIGNS = 6  # designs of which every axis is tried, and a third of all if those are more
LEADERS = 2  # designs of which every axis is tried again, over more requests
MEDIUM = 10  # points that are tried over more requests
FINAL = 4  # points that are run in full
ROUNDS = 3  # of full trials around the best

Score = tuple[float, ...]  # greater is better


class Try(NamedTuple):
    """A design by number, and a point of its settings."""

    design: int
    point: Point


Measure = Callable[[Sequence[Try], int], Mapping[Try, Score]]  # what can't be run is left out


class Lengths(NamedTuple):
    """Requests of a short, a medium and a full trial."""

    short: int
    medium: int
    full: int


def lengths(total: int, least: int) -> Lengths:
    """Short trials have `least` requests or more; what would be half of the workload or more is all of it."""
    short, medium = (n if 2 * n <= total else total for n in (max(least, total // share) for share in SHARES))
    return Lengths(short, medium, total)


class Halving:
    """One exploration. `measure` runs points over a number of requests; nothing is run twice."""

    def __init__(self, designs: int, sizes: Sequence[int], n: Lengths, measure: Measure) -> None:
        self._designs, self._sizes, self._n, self._measure = designs, list(sizes), n, measure
        self._known: dict[int, dict[Try, Score]] = {}
        self._tried: dict[int, set[Try]] = {}

    def run(self, *, everything: bool = False) -> None:
        """Explore: `measure` is asked for full trials at the end. `everything`: all points in full."""
        every = self._designs
        for size in self._sizes:
            every *= size
        if everything or every <= IN_FULL:
            self._at(self._n.full, (Try(d, p) for d in range(self._designs) for p in _all(self._sizes)))
            return
        kept = self._probe()
        if not kept:
            return
        for design in kept:
            self._axes(design, self._n.short)
        pool = self._ranked(self._n.short)
        self._at(self._n.medium, _first_of_each(pool, 1) + pool[: MEDIUM // 2])
        for design in [t.design for t in _first_of_each(self._ranked(self._n.medium), 1)][:LEADERS]:
            self._axes(design, self._n.medium)
        ranked = self._ranked(self._n.medium)
        self._at(self._n.full, [*_first_of_each(ranked, 1)[: FINAL - 1], *ranked[:2]])
        self._polish()

    def _probe(self) -> list[int]:
        """The designs that do best at any of a few points: those that are worth trying every axis."""
        points = spread(self._sizes, PROBES)
        self._at(self._n.short, (Try(d, p) for d in range(self._designs) for p in points))
        ranked = _first_of_each(self._ranked(self._n.short), 1)
        return [t.design for t in ranked[: max(DESIGNS, len(ranked) // 3)]]

    def _axes(self, design: int, length: int) -> None:
        """Changes one axis at a time from the design's best point, then all that gained together."""
        start = next((t for t in self._ranked(length) if t.design == design), None)
        if start is None:
            return
        found = self._at(length, [Try(design, p) for p in star(start.point, self._sizes)])
        best = found.get(start) or self._known[length][start]
        joined = list(start.point)
        for axis in range(len(self._sizes)):
            better = [(s, t) for t, s in found.items() if t.point[axis] != start.point[axis] and s > best]
            if better:
                joined[axis] = max(better)[1].point[axis]
        self._at(length, [Try(design, tuple(joined))])

    def _polish(self) -> None:
        """Full trials of the best one's neighbours, as long as one of them is better."""
        for _ in range(ROUNDS):
            before = self._ranked(self._n.full)
            if not before:
                return
            self._at(
                self._n.full, [Try(before[0].design, p) for p in star(before[0].point, self._sizes, adjacent=True)]
            )
            if self._ranked(self._n.full)[0] == before[0]:
                return

    def _at(self, length: int, tries: Iterable[Try]) -> dict[Try, Score]:
        """Measures what was not measured at this length; returns the scores of all that were asked for."""
        asked = list(dict.fromkeys(tries))
        known, tried = self._known.setdefault(length, {}), self._tried.setdefault(length, set())
        new = [t for t in asked if t not in tried]
        tried.update(new)
        if new:
            known.update(self._measure(new, length))
        return {t: known[t] for t in asked if t in known}

    def _ranked(self, length: int) -> list[Try]:
        """Best first; equal ones in a fixed order."""
        known = self._known.get(length, {})
        return sorted(known, key=lambda t: (tuple(-s for s in known[t]), t))


def _all(sizes: Sequence[int]) -> list[Point]:
    points: list[Point] = [()]
    for size in sizes:
        points = [(*p, i) for p in points for i in range(size)]
    return points


def _first_of_each(ranked: Iterable[Try], count: int) -> list[Try]:
    """The first `count` of every design, in order."""
    seen: dict[int, int] = {}
    kept = []
    for t in ranked:
        seen[t.design] = seen.get(t.design, 0) + 1
        if seen[t.design] <= count:
            kept.append(t)
    return kept
