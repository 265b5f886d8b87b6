"""Rate steps: closed forms, and what is refused."""

from fractions import Fraction

import pytest

from stageline.errors import BadInput
from stageline.load.ramp import Ramp, Step, parse_ramp

S = 1_000_000_000


def test_times_within_and_across_steps() -> None:
    ramp = Ramp(parse_ramp("0.5:30s,1:60s,2"))
    # 30 s at half the rate use up 15 s of the workload, 60 s at its own rate 60 s more.
    assert ramp.at(0) == (0, 0)
    assert ramp.at(10 * S) == (20 * S, 0)
    assert ramp.at(15 * S) == (30 * S, 1)
    assert ramp.at(75 * S) == (90 * S, 2)
    assert ramp.at(95 * S) == (100 * S, 2)


def test_a_jump_over_a_whole_step() -> None:
    assert Ramp(parse_ramp("1:1s,1:1s,4")).at(10 * S) == (4 * S, 2)


def test_a_last_step_with_an_end_is_the_end() -> None:
    ramp = Ramp(parse_ramp("2:1s"))
    assert ramp.at(2 * S - 1) == (S, 0)  # rounded half-even
    assert ramp.at(2 * S) is None


def test_thirds_do_not_drift() -> None:
    ramp = Ramp((Step(Fraction(3), None),))
    assert [ramp.at(i * S) for i in (1, 2, 3_000_000)] == [(333_333_333, 0), (666_666_667, 0), (1_000_000 * S, 0)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1,2", "only the last step"),
        ("0:3s", "not a positive number"),
        ("1:0", "duration of a step is zero"),
        ("1:abc", "not a number with a unit"),
        ("", "not a positive number"),
    ],
)
def test_bad_steps_are_refused(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as error:
        parse_ramp(text)
    assert "--ramp" in str(error.value)
