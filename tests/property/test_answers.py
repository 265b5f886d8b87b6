"""`search` and `tune` against brute force: a tenth of what `scripts/soak --check answers` runs.

`scripts/soak --check answers --kind search --count 10` and `--kind tune --count 50` are the whole of it.
"""

import pytest

from tests.property.checks import run_case


@pytest.mark.parametrize("number", range(0, 50, 10))
def test_tuning_keeps_its_word(number: int) -> None:
    run_case("answers", "tune", number)


def test_a_search_finds_what_a_grid_finds() -> None:
    run_case("answers", "search", 0)
