"""Which numbers `tune` tries around the best one so far."""

import pytest

from stageline.api.moves import MAX_VALUE
from stageline.api.tuning import around


@pytest.mark.parametrize(
    ("best", "known", "tried"),
    [
        (1024, {1024, 4096}, [512, 2560]),  # nothing below it is known: it may be half of it
        (64, {16, 64}, [128, 40]),
        (64, {16, 64, 128}, [40, 96]),
        (2, {1, 2, 3}, []),
        (1, {1, 4}, [2]),
        (MAX_VALUE, {1024, MAX_VALUE}, [(MAX_VALUE + 1024) // 2]),
    ],
)
def test_between_its_neighbours_and_beyond_the_last(best: int, known: set[int], tried: list[int]) -> None:
    assert around(best, known) == tried
