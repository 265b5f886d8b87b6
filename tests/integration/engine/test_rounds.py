"""Rounds of decode groups through a pipeline, against published gains of even groups over uneven ones."""

from pathlib import Path

import pytest

from bench import pp_bursts
from bench.pp_batching import GIVEN, gained_percent


@pytest.mark.parametrize(("partition", "natural", "even", "measured"), GIVEN)
def test_even_groups_gain_what_was_measured(
    partition: tuple[int, ...], natural: tuple[int, ...], even: tuple[int, ...], measured: float
) -> None:
    """Kimi K3 with seven drafts on B200: TP8 x PP4 and TP8 x PP2 (vllm#57433); nothing is fitted to them."""
    assert gained_percent(partition, natural, even) == pytest.approx(measured, abs=4)


@pytest.mark.parametrize(("task", "users"), [("article", 32), ("counting", 16), ("counting", 32)])
def test_a_cap_on_decode_steps_gains_in_bursts_what_was_measured(task: str, users: int, shared_data: Path) -> None:
    """DeepSeek-V4 on six stages; requests arrive within 100 ms, which is assumed. 16 articles: see the table."""
    row = pp_bursts.row(pp_bursts.plan(shared_data), task, users, spread_ms=100)
    assert row.gained_percent == pytest.approx(pp_bursts.MEASURED[task, users], abs=8)
    assert row.capped[0] == 6 and max(row.natural[:3]) >= 13  # ceil(32 / 6), and a burst that stays together
