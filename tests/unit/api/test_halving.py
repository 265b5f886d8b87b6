"""Halving on known landscapes: it finds the top, within its work."""

from collections.abc import Callable, Sequence

import pytest

from stageline.api.halving import IN_FULL, LEAST_WORK, MOST_WORK, PART, Distinct, Halving, Lengths, lengths
from stageline.api.scoreboard import Measured, Score, Try

SIZES = [5, 4, 3]
TOP = (3, 1, 2)


def explore(
    kinds: list[int], *, everything: bool = False, hopeless: Callable[[Score], bool] = lambda score: False
) -> tuple[dict[Try, Score], float]:
    """Design 2 is best, at TOP; every length ranks alike."""
    full: dict[Try, Score] = {}
    work = 0.0
    n = Lengths(100, 250, 1000)

    def measure(tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
        nonlocal work
        work += len(tries) * requests / n.full
        far = {t: sum(abs(a - b) for a, b in zip(t.point, TOP, strict=True)) for t in tries}
        found: dict[Try, Score] = {t: (float(-abs(t.design - 2) * 3 - far[t]),) for t in tries if t.design != 4}
        if requests == n.full:
            full.update(found)
        return {t: Measured(score, requests) for t, score in found.items()}

    Halving(kinds, SIZES, n, measure).run(everything=everything, hopeless=hopeless)
    return full, work


@pytest.mark.parametrize("kinds", [[0, 1, 2, 3, 4, 5], [0, 0, 2, 2, 4, 4]])
def test_the_top_is_found_within_the_work(kinds: list[int]) -> None:
    full, work = explore(kinds)
    assert max(full, key=lambda t: full[t]) == Try(2, TOP)
    assert work <= max(LEAST_WORK, min(MOST_WORK, len(kinds) * 60 // PART)) + 1


def test_everything_is_all_points_in_full() -> None:
    full, work = explore([0, 1, 2], everything=True)
    assert len(full) == work == 3 * 60


def test_lengths_follow_the_workload() -> None:
    assert lengths(2000, 64) == (125, 500, 2000)
    assert lengths(2000, 64, wanted=10_000) == (250, 500, 2000)
    assert lengths(100, 64) == (100, 100, 100)
    assert lengths(400, 64, wanted=0) == (64, 100, 400)


def test_where_nothing_can_be_hoped_for_one_trial_in_full_is_enough() -> None:
    seen: list[Score] = []

    def hopeless(best: Score) -> bool:
        seen.append(best)
        return True

    full, work = explore([0, 1, 2, 3, 4, 5], hopeless=hopeless)
    assert len(full) == len(seen) == 1
    assert work < 0.8 * explore([0, 1, 2, 3, 4, 5])[1]


def test_the_work_goes_to_axes_that_change_something() -> None:
    """Two of three axes change nothing, and the beginning of the workload prefers the wrong end of the third."""
    best, sizes = 1, [5, 2, 4]
    full: dict[Try, Score] = {}

    def measure(tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
        top = best if requests == 1000 else 4
        found: dict[Try, Score] = {t: (float(-t.design * 9 - abs(t.point[0] - top)),) for t in tries}
        if requests == 1000:
            full.update(found)
        return {t: Measured(score, requests) for t, score in found.items()}

    Halving(range(6), sizes, Lengths(100, 250, 1000), measure).run()
    assert max(full.values()) == (0.0,)
    assert len(full) < LEAST_WORK


@pytest.mark.parametrize("apart", [4, 2, 1])
def test_the_work_is_a_part_of_the_points_that_are_told_apart(apart: int) -> None:
    """The last axis has five values, of which only `apart` run differently."""
    sizes, work = [10, 10, 5], 0

    def measure(tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
        nonlocal work
        work += len(tries) * requests
        return {t: Measured((float(-sum(t.point)),), requests) for t in tries}

    def same(t: Try) -> Try:
        return Try(t.design, (*t.point[:2], min(t.point[2], apart - 1)))

    count = 4 * 10 * 10 * apart
    Halving(range(4), sizes, Lengths(100, 250, 1000), measure, Distinct(same, count)).run()
    assert work / 1000 <= min(MOST_WORK, count // PART) + 1


def test_few_points_that_are_told_apart_run_in_full() -> None:
    full: list[Try] = []

    def measure(tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
        assert requests == 1000
        full.extend(tries)
        return {t: Measured((0.0,), requests) for t in tries}

    def same(t: Try) -> Try:
        return Try(t.design, (t.point[0], 0))

    Halving([0, 1], [6, 9], Lengths(100, 250, 1000), measure, Distinct(same, IN_FULL)).run()
    assert len(full) == IN_FULL
