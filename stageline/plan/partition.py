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
    count = len(parts[0].times)
    if len(parts) == 1:
        return [(0, count)] if parts[0].fits(0, count) else None
    stages = _stages(parts)
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
    slowest = max(sum(part.times[start:end]) for part, (start, end) in zip(parts, cuts, strict=True))
    limit = int(slowest * (1 + slack))

    def roomy(requests: int) -> list[Part]:
        kinds = {id(p): _with_room(p, requests) for p in parts}
        return [kinds[id(p)] for p in parts]

    low, high = min(held(parts, cuts), enough), enough + 1
    while high - low > 1:  # whether a cut has that much room falls as the room grows
        middle = min((low + high) // 2, 2 * low + 1)
        if _search(_stages(roomy(middle)), max, limit) is None:
            high = middle
        else:
            low = middle
    return balanced_over(roomy(low)) or cuts


def held(parts: Sequence[Part], cuts: Cuts) -> int:
    """The requests that the stage with the least room for them holds."""
    return min(part.holds(start, end) for part, (start, end) in zip(parts, cuts, strict=True))


def _with_room(part: Part, requests: int) -> Part:
    return part._replace(fits=lambda start, end: part.fits(start, end) and part.holds(start, end) >= requests)


Stage = tuple[list[int], list[list[int]]]  # times added up; for every end, the starts of runs that fit, ascending


def _stages(parts: Sequence[Part]) -> list[Stage]:
    kinds = {id(part): part for part in parts}  # equal stages share a part, whose runs are looked for once
    stages = {key: ([0, *accumulate(p.times)], _runs(len(p.times) + 1, p.fits)) for key, p in kinds.items()}
    return [stages[id(part)] for part in parts]


def _peak(stages: Sequence[Stage], cuts: Cuts) -> int:
    return max(total[end] - total[start] for (total, _), (start, end) in zip(stages, cuts, strict=True))


def _search(parts: Sequence[Stage], join: Callable[[int, int], int], limit: int | None) -> Cuts | None:
    """Minimise the value that `join` builds up over all cuts into runs that fit and take at most `limit`."""
    count, stages = len(parts[0][0]) - 1, len(parts)
    row: list[int | None] = [0] + [None] * count  # best value for the first `end` layers
    choice: list[list[int]] = []
    for stage, (total, runs) in enumerate(parts, 1):
        new: list[int | None] = [None] * (count + 1)
        start_of = [0] * (count + 1)
        for end in range(stage, count - (stages - stage) + 1):
            for start in runs[end]:
                before, time = row[start], total[end] - total[start]
                if before is None or (limit is not None and time > limit):
                    continue
                value = join(before, time)
                best = new[end]
                if best is None or value < best:
                    new[end], start_of[end] = value, start
        row = new
        choice.append(start_of)
    if row[count] is None:
        return None
    return _walk_back(choice, count)


def _runs(ends: int, fits: Fits) -> list[list[int]]:
    """For every end, the starts of runs that fit, ascending."""
    allowed = []
    for end in range(ends):
        starts: list[int] = []
        for start in range(end - 1, -1, -1):
            if not fits(start, end):
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
