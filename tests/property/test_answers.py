"""`search` and `tune` against brute force: a tenth of what `scripts/soak --check answers` runs.

A search is held against a seeded tenth of a grid's points. `scripts/soak --check answers --kind search --count 10` and
`--kind tune --count 50` are the whole of it.
"""

import pytest

from tests.property.answers import search_finds_the_grids_best
from tests.property.checks import run_case


@pytest.mark.parametrize("number", range(0, 50, 10))
def test_tuning_keeps_its_word(number: int) -> None:
    run_case("answers", "tune", number)


@pytest.mark.parametrize("number", [0, 7])
def test_a_search_finds_what_a_tenth_of_a_grid_finds(number: int) -> None:
    search_finds_the_grids_best(number, part=0.1)
