"""Cuts consecutive layers into stages: as few as fit, or a given number as evenly as possible.

Both cuts are optimal: the greedy one because a run that does not fit never fits when it grows, the balanced one by
dynamic programming over all cuts.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

Fits = Callable[[int, int], bool]
Cuts = list[tuple[int, int]]  # (start, end) of each run, end exclusive


def fewest(count: int, fits: Fits) -> Cuts | int:
    """The fewest runs that fit, or the index of the first layer that does not fit alone."""
    cuts: Cuts = []
    start = 0
    while start < count:
        end = start
        while end < count and fits(start, end + 1):
            end += 1
        if end == start:
            return start
        cuts.append((start, end))
        start = end
    return cuts


def balanced(times: Sequence[int], stages: int, fits: Fits) -> Cuts | None:
    """Cut into exactly `stages` runs that fit: least maximum time, then least sum of squares, then earliest cut points.

    None if no cut fits. O(stages x layers^2).
    """
    return balanced_over([Part(times, fits)] * stages)


class Part(NamedTuple):
    """A stage: the time of every layer on its device, whether a run of layers fits, and how many requests it leaves."""

    times: Sequence[int]
    fits: Fits
    holds: Callable[[int, int], int] = lambda start, end: 0


def balanced_over(parts: Sequence[Part]) -> Cuts | None:
    """Like `balanced`, for stages of different speed and room: the first run goes to the first part, and so on."""
    totals = {id(part): [0, *accumulate(part.times)] for part in parts}
    stages = [(totals[id(part)], part.fits) for part in parts]
    peak = _search(stages, max, None)
    if peak is None:
        return None
    best = _search(stages, lambda before, time: before + time * time, _peak(stages, peak))
    assert best is not None
    return best


def roomiest(parts: Sequence[Part], cuts: Cuts, slack: float, enough: int) -> Cuts:
    """Of all cuts that are at most `slack` slower than these, the one whose fullest stage holds the most requests.

    It is the most balanced one of those. More than `enough` requests count for nothing.
    """
    totals = {id(part): [0, *accumulate(part.times)] for part in parts}
    limit = int(_peak([(totals[id(part)], part.fits) for part in parts], cuts) * (1 + slack))

    def cut(requests: int) -> Cuts | None:
        kinds = {id(p): _with_room(p, requests) for p in parts}
        return _search([(totals[id(p)], kinds[id(p)]) for p in parts], max, limit)

    low, high = min(held(parts, cuts), enough), enough + 1
    while high - low > 1:  # whether a cut has that much room falls as the room grows
        middle = min((low + high) // 2, 2 * low + 1)
        if cut(middle) is None:
            high = middle
        else:
            low = middle
    kinds = {id(p): p._replace(fits=_with_room(p, low)) for p in parts}
    return balanced_over([kinds[id(p)] for p in parts]) or cuts


def held(parts: Sequence[Part], cuts: Cuts) -> int:
    """The requests that the stage with the least room for them holds."""
    return min(part.holds(start, end) for part, (start, end) in zip(parts, cuts, strict=True))


def _with_room(part: Part, requests: int) -> Fits:
    return lambda start, end: part.fits(start, end) and part.holds(start, end) >= requests


Stage = tuple[list[int], Fits]  # times added up, and whether a run fits


def _peak(stages: Sequence[Stage], cuts: Cuts) -> int:
    return max(total[end] - total[start] for (total, _), (start, end) in zip(stages, cuts, strict=True))


def _search(parts: Sequence[Stage], join: Callable[[int, int], int], limit: int | None) -> Cuts | None:
    """Minimise the value that `join` builds up over all cuts into runs that fit and take at most `limit`."""
    count, stages = len(parts[0][0]) - 1, len(parts)
    allowed = {id(total): _runs(total, fits, limit) for total, fits in parts}
    row: list[int | None] = [0] + [None] * count  # best value for the first `end` layers
    choice: list[list[int]] = []
    for stage, (total, _) in enumerate(parts, 1):
        runs = allowed[id(total)]
        new: list[int | None] = [None] * (count + 1)
        start_of = [0] * (count + 1)
        for end in range(stage, count - (stages - stage) + 1):
            for start in runs[end]:
                before = row[start]
                if before is None:
                    continue
                value = join(before, total[end] - total[start])
                best = new[end]
                if best is None or value < best:
                    new[end], start_of[end] = value, start
        row = new
        choice.append(start_of)
    if row[count] is None:
        return None
    return _walk_back(choice, count)


def _runs(total: list[int], fits: Fits, limit: int | None) -> list[list[int]]:
    """For every end, the starts of allowed runs, ascending."""
    allowed = []
    for end in range(len(total)):
        starts: list[int] = []
        for start in range(end - 1, -1, -1):
            if (limit is not None and total[end] - total[start] > limit) or not fits(start, end):
                break
            starts.append(start)
        allowed.append(starts[::-1])
    return allowed


def _walk_back(choice: list[list[int]], end: int) -> Cuts:
    cuts: Cuts = []
    for start_of in reversed(choice):
        cuts.append((start_of[end], end))
        end = start_of[end]
    return cuts[::-1]
