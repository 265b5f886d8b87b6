"""Successive halving over the length of a workload: many points on its beginning, few on all of it.

A point is a design (what to run on) and a choice for every axis of settings. The beginning of a workload ranks points
roughly, which is enough to leave most of them out; only what is run in full is a result.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from stageline.api.scoreboard import Measure, Score, Scoreboard, Try, itself, moved
from stageline.api.variations import Point, spread

IN_FULL = 12  # points that are few enough to run all of them in full
PROBES = 3  # of every design at first: the first, the middle and the last values of all axes
SHORT, MEDIUM = (16, 8), 4  # a short trial has a 16th to an 8th of the requests, a medium one a quarter
DESIGNS = 4  # designs of which every axis is tried, and a third of all if those are more
CROWD = 4  # points that are run on a quarter for being among the best, whatever their design
FINAL = 3  # kinds whose best point is run in full
LEAST_WORK, MOST_WORK = 16, 90  # in full trials
PART = 14  # so great a part of all points, between these two: a tenth is promised, and trials are not all that it takes
BRIEF, BRIEF_PART = 4, 10  # a workload with fewer requests than so many short trials gains little from them
GENEROUS = 40  # full trials from which more kinds are looked at closely

NEAR, FAR, IDLE = range(3)  # neighbours of a point; other values of its axes; changes that changed nothing so far


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


class Distinct(NamedTuple):
    """What tells points apart: `same` gives the try that stands for all those known to run alike, of which there are
    `points`.
    """

    same: Callable[[Try], Try]
    points: int


class Halving:
    """One exploration. `measure` runs points over a number of requests; nothing is run twice.

    `kinds` has a number for every design: designs that differ in formats only are of one kind. Of each of the best
    kinds one point is followed to the end, because the beginning of a workload can't tell which kind is best.
    """

    def __init__(
        self,
        kinds: Sequence[int],
        sizes: Sequence[int],
        n: Lengths,
        measure: Measure,
        distinct: Distinct | None = None,
    ) -> None:
        self._kinds, self._sizes, self._n = list(kinds), list(sizes), n
        same, points = distinct or Distinct(itself, len(self._kinds) * math.prod(self._sizes))
        self._few = points <= IN_FULL
        self._seen = Scoreboard(measure, same, n.full, float(_work(points, brief=n.full < BRIEF * n.short)))
        generous = self._seen.left >= GENEROUS
        self._closely = 3 if generous else 2
        self._again = 3 if generous else 1  # kinds of which every axis is tried over more requests

    def run(self, *, everything: bool = False, hopeless: Callable[[Score], bool] = lambda score: False) -> None:
        """Explore: `measure` is asked for full trials at the end. `everything`: all points in full.

        `hopeless` says of a score on a quarter that more trials are not worth it: if it says so of the best, only that
        is run in full.
        """
        n, seen = self._n, self._seen
        if everything or self._few:
            seen.at(n.full, (Try(d, p) for d in range(len(self._kinds)) for p in _all(self._sizes)))
            return
        for design in self._probe():
            self._axes(design, n.short)
        pool = seen.ranked(n.short)
        seen.at(n.medium, [*self._of_each_kind(pool), *pool[:CROWD]])
        top = seen.ranked(n.medium)[:1]
        if top and hopeless(seen.score(n.medium, top[0])):
            seen.at(n.full, top)
            return
        for t in self._of_each_kind(seen.ranked(n.medium))[: self._again]:
            self._axes(t.design, n.medium)
        ranked = seen.ranked(n.medium)
        seen.at(n.full, [*self._of_each_kind(ranked)[:FINAL], *ranked[:2]])
        self._polish()

    def _probe(self) -> list[int]:
        """The designs that do best at any of a few points: those that are worth trying every axis."""
        points = spread(self._sizes, PROBES)
        self._seen.at(self._n.short, (Try(d, p) for d in range(len(self._kinds)) for p in points))
        ranked = list(dict.fromkeys(t.design for t in self._seen.ranked(self._n.short)))
        return ranked[: max(DESIGNS, len(ranked) // 3)]

    def _axes(self, design: int, length: int) -> None:
        """Changes one axis at a time from the design's best point, then all that gained together.

        A change that told nothing apart wherever it was tried is left for the end.
        """
        start = next((t for t in self._seen.ranked(length) if t.design == design), None)
        if start is None:
            return
        changes = [c for c in self._changes(start) if not self._seen.idle(start, *c, anywhere=True)]
        found = self._seen.at(length, [moved(start, *change) for change in changes])
        best = self._seen.score(length, start)
        joined = list(start.point)
        for axis in range(len(self._sizes)):
            better = [(s, t) for t, s in found.items() if t.point[axis] != start.point[axis] and s > best]
            if better:
                joined[axis] = max(better)[1].point[axis]
        self._seen.at(length, [Try(design, tuple(joined))])

    def _changes(self, start: Try) -> list[tuple[int, int]]:
        """Every axis with every other value of it."""
        return [(axis, i) for axis, size in enumerate(self._sizes) for i in range(size) if i != start.point[axis]]

    def _polish(self) -> None:
        """Full trials around the best point of each of the best kinds, as long as work is left.

        First the neighbours, but for those that changed nothing in any trial so far; then the other values of the same
        axes; then the rest.
        """
        while self._seen.left >= 1:
            best = self._of_each_kind(self._seen.ranked(self._n.full))[: self._closely]
            near = (self._around(start, rank) for rank in (NEAR, FAR, IDLE) for start in best)
            new = next((tries for tries in near if tries), None)
            if new is None:
                return
            self._seen.at(self._n.full, new[: int(self._seen.left)])

    def _around(self, start: Try, rank: int) -> list[Try]:
        """What was not run in full of the star around a try, and how much is to be expected of it."""
        found = []
        for axis, index in self._changes(start):
            near = abs(index - start.point[axis]) == 1
            of = IDLE if self._seen.idle(start, axis, index) else NEAR if near else FAR
            t = moved(start, axis, index)
            if of == rank and self._seen.is_new(self._n.full, t):
                found.append(t)
        return found

    def _of_each_kind(self, ranked: Iterable[Try]) -> list[Try]:
        """The first of every kind, in order."""
        seen: dict[int, Try] = {}
        for t in ranked:
            seen.setdefault(self._kinds[t.design], t)
        return list(seen.values())


def _work(points: int, *, brief: bool) -> int:
    """What an exploration may take, in full trials."""
    if brief:
        return min(2 * MOST_WORK, max(2 * LEAST_WORK, points // BRIEF_PART))
    return min(MOST_WORK, max(LEAST_WORK, points // PART))


def _all(sizes: Sequence[int]) -> list[Point]:
    points: list[Point] = [()]
    for size in sizes:
        points = [(*p, i) for p in points for i in range(size)]
    return points
