"""The functions built from + - * / and sqrt, against the platform's."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageline.workload.exact_math import exp, ln, normal_quantile, unit


@given(st.floats(1e-300, 1e300))
def test_ln(x: float) -> None:
    assert ln(x) == pytest.approx(math.log(x), rel=1e-14, abs=1e-15)


@given(st.floats(-700, 700))
def test_exp(x: float) -> None:
    assert exp(x) == pytest.approx(math.exp(x), rel=1e-14)


@given(st.floats(1e-17, 1 - 1e-16))
def test_normal_quantile(p: float) -> None:
    assert normal_quantile(p) == pytest.approx(NormalDist().inv_cdf(p), rel=1e-13, abs=1e-15)


@given(st.integers(0, 2**64 - 1))
def test_unit_stays_inside(draw: int) -> None:
    assert 0.0 < unit(draw) < 1.0
    assert 1.0 - unit(draw) == unit(draw ^ (2**64 - 1))


def test_the_bits_are_pinned() -> None:
    """Every machine gives these bits. A changed algorithm changes digests, so it must fail here."""
    assert ln(10.0).hex() == "0x1.26bb1bbb55516p+1"
    assert exp(1.0).hex() == "0x1.5bf0a8b14576ap+1"
    assert normal_quantile(0.001).hex() == "-0x1.8b8cbb7204470p+1"
