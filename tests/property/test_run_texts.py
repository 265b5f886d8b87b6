"""Texts that users write after flags: a value, or BadInput; never another exception."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageline.errors import BadInput
from stageline.report.slo import parse_slo
from stageline.units import MAX_TIME_NS, parse_duration_ns, parse_rate_bytes_per_s, parse_ratio, parse_tokens

TEXTS = st.text(max_size=30) | st.text(alphabet="0123456789.,/=nusmhkKMGTBi e-+ttftpotattainment", max_size=40)


@pytest.mark.parametrize("parse", [parse_duration_ns, parse_rate_bytes_per_s, parse_tokens])
@given(TEXTS)
def test_quantities(parse: Callable[[str], int], text: str) -> None:
    with contextlib.suppress(BadInput):
        assert 0 <= parse(text) < MAX_TIME_NS


@given(TEXTS)
def test_ratios(text: str) -> None:
    with contextlib.suppress(BadInput):
        assert parse_ratio(text, "x") > 0


@given(TEXTS)
def test_objectives(text: str) -> None:
    for candidate in (text, "ttft=" + text, "ttft=1s,attainment=" + text):
        with contextlib.suppress(BadInput):
            assert 0 < parse_slo(candidate).attainment <= 1
