"""`search` and `tune` against brute force: a tenth of what `scripts/soak --check answers` runs.

A search is held against a seeded part of a grid's points. `scripts/soak --check answers --kind search --count 10`,
`--kind search-fleets --count 20` and `--kind tune --count 50` are the whole of it.
"""

import pytest

from tests.property.answers import search_finds_the_grids_best
from tests.property.checks import run_case
from tests.property.fleet_answers import search_finds_the_best_fleet


@pytest.mark.parametrize("number", range(0, 50, 10))
def test_tuning_keeps_its_word(number: int) -> None:
    run_case("answers", "tune", number)


@pytest.mark.parametrize("number", [0, 7])
def test_a_search_finds_what_a_tenth_of_a_grid_finds(number: int) -> None:
    search_finds_the_grids_best(number, part=0.1)


def test_a_search_finds_the_best_fleet_of_a_part_of_a_grid() -> None:
    search_finds_the_best_fleet(2, devices=4, part=0.05)
