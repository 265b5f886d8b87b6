"""Successive halving over the length of a workload: many points on its beginning, few on all of it.

A point is a design (what to run on) and a choice for every axis of settings. The beginning of a workload ranks points
roughly, which is enough to leave most of them out; only what is run in full is a result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stageline.api.variations import Point, spread, star

IN_FULL = 12  # points that are few enough to run all of them in full
PROBES = 3  # of every design at first: the first, the middle and the last values of all axes
SHORT, MEDIUM = (16, 8), 4  # a short trial has a 16th to an 8th of the requests, a medium one a quarter
DESIGNS = 4  # designs of which every axis is tried, and a third of all if those are more
CROWD = 4  # points that are run on a quarter for being among the best, whatever their design
FINAL = 3  # kinds whose best point is run in full
LEAST_WORK, MOST_WORK, PART = 16, 90, 20  # in full trials: a 20th of all points, between these two
GENEROUS = 40  # full trials from which more kinds are looked at closely

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


def lengths(total: int, least: int, wanted: int = 0) -> Lengths:
    """Short trials have `least` requests or more, and `wanted` if that is no more than an 8th of all.

    What would be more than half of the workload is all of it.
    """
    short = max(least, total // SHORT[0], min(wanted, total // SHORT[1]))
    medium = max(short, total // MEDIUM)
    return Lengths(total if 2 * short > total else short, total if 2 * medium > total else medium, total)


class Halving:
    """One exploration. `measure` runs points over a number of requests; nothing is run twice.

    `kinds` has a number for every design: designs that differ in formats only are of one kind. Of each of the best
    kinds one point is followed to the end, because the beginning of a workload can't tell which kind is best.
    """

    def __init__(self, kinds: Sequence[int], sizes: Sequence[int], n: Lengths, measure: Measure) -> None:
        self._kinds, self._sizes, self._n, self._measure = list(kinds), list(sizes), n, measure
        self._known: dict[int, dict[Try, Score]] = {}
        self._tried: dict[int, set[Try]] = {}
        self._points = len(self._kinds)
        for size in self._sizes:
            self._points *= size
        self._left = float(min(MOST_WORK, max(LEAST_WORK, self._points // PART)))  # full trials
        self._closely = 3 if self._left >= GENEROUS else 2
        self._again = 3 if self._left >= GENEROUS else 1  # kinds of which every axis is tried over more requests

    def run(self, *, everything: bool = False, hopeless: Callable[[Score], bool] = lambda score: False) -> None:
        """Explore: `measure` is asked for full trials at the end. `everything`: all points in full.

        `hopeless` says of a score on a quarter that more trials are not worth it: if it says so of the best, only that
        is run in full.
        """
        if everything or self._points <= IN_FULL:
            self._at(self._n.full, (Try(d, p) for d in range(len(self._kinds)) for p in _all(self._sizes)))
            return
        for design in self._probe():
            self._axes(design, self._n.short)
        pool = self._ranked(self._n.short)
        self._at(self._n.medium, [*self._of_each_kind(pool), *pool[:CROWD]])
        top = self._ranked(self._n.medium)[:1]
        if top and hopeless(self._known[self._n.medium][top[0]]):
            self._at(self._n.full, top)
            return
        for t in self._of_each_kind(self._ranked(self._n.medium))[: self._again]:
            self._axes(t.design, self._n.medium)
        ranked = self._ranked(self._n.medium)
        self._at(self._n.full, [*self._of_each_kind(ranked)[:FINAL], *ranked[:2]])
        self._polish()

    def _probe(self) -> list[int]:
        """The designs that do best at any of a few points: those that are worth trying every axis."""
        points = spread(self._sizes, PROBES)
        self._at(self._n.short, (Try(d, p) for d in range(len(self._kinds)) for p in points))
        ranked = list(dict.fromkeys(t.design for t in self._ranked(self._n.short)))
        return ranked[: max(DESIGNS, len(ranked) // 3)]

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
        """Full trials around the best point of each of the best kinds, as long as they gain and work is left."""
        done: set[Try] = set()
        while True:
            best = self._of_each_kind(self._ranked(self._n.full))[: self._closely]
            start = next((t for t in best if t not in done), None)
            if start is None:
                return
            done.add(start)
            near = [Try(start.design, p) for p in star(start.point, self._sizes, adjacent=True)]
            new = [t for t in near if t not in self._tried[self._n.full]]
            if len(new) > self._left:
                return
            self._at(self._n.full, new)

    def _at(self, length: int, tries: Iterable[Try]) -> dict[Try, Score]:
        """Measures what was not measured at this length; returns the scores of all that were asked for."""
        asked = list(dict.fromkeys(tries))
        known, tried = self._known.setdefault(length, {}), self._tried.setdefault(length, set())
        new = [t for t in asked if t not in tried]
        tried.update(new)
        self._left -= len(new) * length / self._n.full
        if new:
            known.update(self._measure(new, length))
        return {t: known[t] for t in asked if t in known}

    def _ranked(self, length: int) -> list[Try]:
        """Best first; equal ones in a fixed order."""
        known = self._known.get(length, {})
        return sorted(known, key=lambda t: (tuple(-s for s in known[t]), t))

    def _of_each_kind(self, ranked: Iterable[Try]) -> list[Try]:
        """The first of every kind, in order."""
        seen: dict[int, Try] = {}
        for t in ranked:
            seen.setdefault(self._kinds[t.design], t)
        return list(seen.values())


def _all(sizes: Sequence[int]) -> list[Point]:
    points: list[Point] = [()]
    for size in sizes:
        points = [(*p, i) for p in points for i in range(size)]
    return points
