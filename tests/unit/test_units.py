"""Durations, sizes and decimals become exact integers, or are refused."""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageline.errors import BadInput
from stageline.units import (
    MAX_TIME_NS,
    bytes_text,
    decimal_ns,
    format_duration,
    parse_duration_ns,
    parse_rate_bytes_per_s,
    parse_ratio,
    parse_tokens,
    rounded_ratio,
    shorten,
    time_text,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("2us", 2_000),
        ("2 µs", 2_000),
        ("50ms", 50_000_000),
        ("1.5s", 1_500_000_000),
        ("0.000000001s", 1),
        ("1,500us", 1_500_000),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a number with a unit"),
        ("5", "not a number with a unit"),
        ("-1s", "not a number with a unit"),
        ("1e3s", "not a number with a unit"),
        ("1,5s", "not a number with a unit"),
        ("1.5 parsecs", "not a number with a unit"),
        ("9" * 19 + "s", "too large"),
        ("1." + "5" * 19 + "s", "finer than the smallest unit"),
        ("1.5ns", "finer than the smallest unit"),
        ("999999999h", "too large"),
        ("12345678901234567890s", "too large"),
        ("1,000,000,000,000,000,000,000s", "too large"),
        ("0.0000000000000000000001s", "finer than the smallest unit"),
    ],
)
def test_bad_durations(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=f"--hop-latency: {reason}"):
        parse_duration_ns(text, "--hop-latency")


def test_rates() -> None:
    assert parse_rate_bytes_per_s("400Gbit/s") == 50 * 10**9
    assert parse_rate_bytes_per_s("1.5 TB/s") == 1_500_000_000_000
    for text, reason in (("1.5B/s", "finer.* whole number of B/s"), ("0GB/s", "zero band"), ("300", "not a number")):
        with pytest.raises(BadInput, match=f"--hop-bandwidth: {reason}"):
            parse_rate_bytes_per_s(text, "--hop-bandwidth")


def test_tokens() -> None:
    assert [parse_tokens(text) for text in ("8192", "128K", "1M", "131,072", "131_072", "0.5K")] == [
        8192, 131_072, 1 << 20, 131_072, 131_072, 512,
    ]  # fmt: skip
    for text, reason in (
        ("1,5K", "not a number"),
        ("1.5", "finer.* whole number$"),
        ("8kB", "not a number"),
        ("9" * 30, "too large"),
    ):
        with pytest.raises(BadInput, match=f"--context: {reason}"):
            parse_tokens(text, "--context")


@pytest.mark.parametrize(("text", "value"), [("4", 4), ("0.5", Fraction(1, 2)), ("3/2", Fraction(3, 2))])
def test_ratios(text: str, value: Fraction) -> None:
    assert parse_ratio(text, "x") == value


@pytest.mark.parametrize("text", ["", "0", "-1", "1/0", "1e3", "inf", "1/2/3", "1" * 40])
def test_bad_ratios(text: str) -> None:
    reasons = "not a positive number|written with an exponent|has too many digits"
    with pytest.raises(BadInput, match=f"--rate-scale: ({reasons})"):
        parse_ratio(text, "--rate-scale")


@given(
    st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False), st.sampled_from([1, 10**6, 10**9])
)
@example(Decimal("1.5"), 1)
def test_decimals_are_exact_and_rounded_once(value: Decimal, unit_ns: int) -> None:
    wide = Context(prec=400)
    expected = int(wide.multiply(value, unit_ns).to_integral_value(ROUND_HALF_EVEN, context=wide))
    for text in (format(value, "f"), str(value)):
        got = decimal_ns(text, unit_ns)
        if got is not None:  # texts of more than thirty fractional digits are refused
            assert got == expected
        else:
            assert len(text) > 30 or "E" in text


@pytest.mark.parametrize("text", ["", "-1", "1,5", "0x1", "nan", "1e999", "1_0", "١", str(MAX_TIME_NS), "9" * 19])
def test_what_is_no_time(text: str) -> None:
    assert decimal_ns(text, 1) is None


@given(st.integers(0, 10**20), st.integers(1, 10**12) | st.sampled_from([2, 4, 10]))
@example(1, 2)
@example(3, 2)
def test_rounding_is_half_even(numerator: int, denominator: int) -> None:
    assert rounded_ratio(numerator, denominator) == round(Fraction(numerator, denominator))


def test_texts_for_people() -> None:
    assert [format_duration(ns) for ns in (0, 999, 1_000, 1_234_567, 12_345_678_900, 999_900)] == [
        "0 ns", "999 ns", "1.00 us", "1.23 ms", "12.3 s", "1.00 ms",
    ]  # fmt: skip
    assert [bytes_text(b) for b in (0, 999, 38_669_055_296)] == ["0 B", "999 B", "38.67 GB"]
    assert [time_text(ns) for ns in (0, 999, 1_962_211)] == ["0 ns", "999 ns", "1.96 ms"]
    assert shorten("abcdefgh", 6) == "abc..."
    assert shorten("abc", 6) == "abc"
