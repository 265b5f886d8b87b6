"""Cuts consecutive layers into stages: as few as fit, or a given number as evenly as possible.

Both cuts are optimal: the greedy one because a run that does not fit never fits when it grows, the balanced one by
dynamic programming over all cuts.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

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
    total = [0, *accumulate(times)]
    peak = _search(total, stages, fits, max, None)
    if peak is None:
        return None
    best = _search(total, stages, fits, lambda before, time: before + time * time, _peak(total, peak))
    assert best is not None
    return best


def _peak(total: list[int], cuts: Cuts) -> int:
    return max(total[end] - total[start] for start, end in cuts)


def _search(
    total: list[int], stages: int, fits: Fits, join: Callable[[int, int], int], limit: int | None
) -> Cuts | None:
    """Minimise the value that `join` builds up over all cuts into `stages` runs that fit and take at most `limit`."""
    count = len(total) - 1
    runs = _runs(total, fits, limit)
    row: list[int | None] = [0] + [None] * count  # best value for the first `end` layers
    choice: list[list[int]] = []
    for stage in range(1, stages + 1):
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
