"""The largest load that keeps an objective, by bisection; several loads at a time where several can run."""

from collections.abc import Callable, Sequence

import msgspec

FACTOR = 1.25  # from one load to the next, while the limit is not bracketed
FURTHEST = 1 << 10  # times the first load, up or down
Probe = Callable[[Sequence[float]], Sequence[bool]]  # which of these loads keep the objective


class Limit(msgspec.Struct, frozen=True):
    """`kept` is the largest load seen to keep the objective (None: not even the smallest tried), `missed` the next."""

    kept: float | None
    missed: float | None  # None: even the largest load tried keeps it
    monotone: bool  # no load that was tried keeps it above one that misses it
    tried: tuple[tuple[float, bool], ...]  # ascending


def largest_load(probe: Probe, *starts: float, width: int = 1, precision: float = 0.02, whole: bool = False) -> Limit:
    """Bracket the limit from `starts` in steps of a quarter, then narrow it to `precision`, `width` loads at a time.

    Nothing proves that more load is worse for an objective: a batch may form otherwise. What was tried is checked, and
    `monotone` says whether it was so there. `whole`: loads are whole numbers, such as users.
    """
    seen: dict[float, bool] = {}

    def run(loads: Sequence[float]) -> None:
        wanted = dict.fromkeys(max(1.0, float(round(x))) if whole else x for x in loads)
        new = [x for x in wanted if x not in seen]
        seen.update(zip(new, probe(new), strict=True) if new else ())

    run(starts)
    up = all(seen.values())
    edge = max(seen) if up else min(seen)
    while all(seen.values()) if up else not any(seen.values()):
        step = [edge * FACTOR ** ((n + 1) if up else -(n + 1)) for n in range(width)]
        if whole and not up and edge <= 1:
            break
        if whole:  # the next whole number, where a quarter is less than one
            step = [max(x, edge + n + 1) if up else min(x, edge - n - 1) for n, x in enumerate(step)]
        run(step)
        edge = max(seen) if up else min(seen)
        if not min(starts) / FURTHEST < edge < max(starts) * FURTHEST:
            break
    while (bracket := _bracket(seen)) is not None:
        low, high = bracket
        if high / low - 1 <= precision or (whole and high - low <= 1):
            break
        before = len(seen)
        run([low * (high / low) ** ((n + 1) / (width + 1)) for n in range(width)])
        if len(seen) == before:  # whole numbers, all of which were tried
            break
    return _limit(seen)


def _bracket(seen: dict[float, bool]) -> tuple[float, float] | None:
    """The last load before the first that misses, and that one."""
    missed = min((x for x, kept in seen.items() if not kept), default=None)
    below = [x for x, kept in seen.items() if kept and missed is not None and x < missed]
    return (max(below), missed) if missed is not None and below else None


def _limit(seen: dict[float, bool]) -> Limit:
    missed = min((x for x, kept in seen.items() if not kept), default=None)
    kept = [x for x, good in seen.items() if good and (missed is None or x < missed)]
    monotone = missed is None or not any(good and x > missed for x, good in seen.items())
    return Limit(max(kept, default=None), missed, monotone, tuple(sorted(seen.items())))
