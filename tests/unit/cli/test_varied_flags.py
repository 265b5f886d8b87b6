"""Numbers in the lists of a search: what is wrong with one is said as it is."""

import pytest

from stageline.cli.varied_flags import _count
from stageline.engine.settings import MAX_COUNT
from stageline.errors import BadInput


@pytest.mark.parametrize("text", ["0", "000", "-1", "1.5", "x", "", "\u0663"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(BadInput, match="--credits: not a positive whole number"):
        _count("--credits", text)


@pytest.mark.parametrize("text", [str(MAX_COUNT + 1), "9" * 10_000])
def test_what_is_too_large(text: str) -> None:
    with pytest.raises(BadInput, match="--credits: too large") as refused:
        _count("--credits", text)
    assert len(str(refused.value)) < 100


def test_a_count() -> None:
    assert _count("--credits", "64") == 64
