"""Rounds of decode groups through a pipeline, against published gains of even groups over uneven ones."""

import pytest

from bench.pp_batching import GIVEN, gained_percent


@pytest.mark.parametrize(("partition", "natural", "even", "measured"), GIVEN)
def test_even_groups_gain_what_was_measured(
    partition: tuple[int, ...], natural: tuple[int, ...], even: tuple[int, ...], measured: float
) -> None:
    """Kimi K3 with seven drafts on B200: TP8 x PP4 and TP8 x PP2 (vllm#57433); nothing is fitted to them."""
    assert gained_percent(partition, natural, even) == pytest.approx(measured, abs=4)
