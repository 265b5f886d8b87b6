"""Scores by length, what is charged for them, and which axes are idle."""

from collections.abc import Sequence

from stageline.api.scoreboard import Measured, Scoreboard, Try, alike


def board(full: int = 100, left: float = 10.0) -> tuple[Scoreboard, list[Try]]:
    """Axis 0 counts, axis 1 only from its value 2 on; design 9 can't be run. Tries of design 1 ignore axis 1."""
    ran: list[Try] = []

    def measure(tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
        ran.extend(tries)
        return {t: Measured((float(t.point[0] + max(0, t.point[1] - 1)),), requests) for t in tries if t.design != 9}

    def same(t: Try) -> Try:
        return Try(1, (t.point[0], 0)) if t.design == 1 else t

    return Scoreboard(measure, same, full, left), ran


def test_nothing_is_run_twice_and_only_what_ran_is_charged() -> None:
    seen, ran = board()
    assert seen.at(50, [Try(0, (1, 0)), Try(0, (1, 0)), Try(9, (0, 0))]) == {Try(0, (1, 0)): (1.0,)}
    assert seen.left == 9.5
    seen.at(50, [Try(0, (1, 0)), Try(9, (0, 0))])
    assert (len(ran), seen.left) == (2, 9.5)
    seen.at(100, [Try(0, (1, 0))])
    assert (len(ran), seen.left) == (3, 8.5)


def test_tries_that_run_alike_are_one() -> None:
    seen, ran = board()
    assert seen.at(100, [Try(1, (2, 0)), Try(1, (2, 3))]) == {Try(1, (2, 0)): (2.0,)}
    assert ran == [Try(1, (2, 0))] and seen.left == 9.0
    assert not seen.is_new(100, Try(1, (2, 1))) and seen.is_new(100, Try(1, (3, 0))) and seen.is_new(50, Try(1, (2, 1)))


def test_equal_scores_of_one_design_take_one_rank() -> None:
    seen, _ = board()
    seen.at(100, [Try(0, (1, 1)), Try(0, (1, 0)), Try(1, (1, 0)), Try(0, (3, 0))])
    assert seen.ranked(100) == [Try(0, (3, 0)), Try(0, (1, 0)), Try(1, (1, 0))]
    assert seen.ranked(50) == []


def test_a_change_is_idle_while_it_told_nothing_apart() -> None:
    seen, _ = board()
    low = Try(0, (1, 0))
    assert not seen.idle(low, 1, 1)  # nobody knows
    seen.at(50, [low, Try(0, (1, 1)), Try(0, (1, 2))])
    assert seen.idle(low, 1, 1) and seen.idle(Try(0, (4, 1)), 1, 0)
    assert not seen.idle(low, 1, 2) and not seen.idle(low, 0, 2)
    other = Try(5, (1, 0))
    assert not seen.idle(other, 1, 1) and seen.idle(other, 1, 1, anywhere=True)


def test_work_is_counted_in_the_trials_measured_first() -> None:
    """Those take 2 on average for a quarter of the requests, so a full trial takes 8."""

    def measure(tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
        return {t: Measured((0.0,), float(t.point[0])) for t in tries}

    seen = Scoreboard(measure, lambda t: t, 100, 10.0)
    seen.at(25, [Try(0, (1,)), Try(0, (3,))])
    assert seen.left == 9.5
    seen.at(100, [Try(0, (16,))])
    assert seen.left == 7.5


def test_next_to_nothing_is_alike() -> None:
    assert alike((0.0, 1.0), (0.0, 1.0005))
    assert not alike((0.0, 1.0), (0.0, 1.002)) and not alike((1.0, 1.0), (0.0, 1.0))
