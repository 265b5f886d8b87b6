"""Durations, sizes and decimal numbers as people write them, turned into exact integers; and back, for tables.

No float takes part in parsing: a decimal text becomes an integer of ns or bytes, or is refused.
"""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from stageline.errors import BadInput

NS_PER_S = 1_000_000_000
MAX_TIME_NS = 1 << 61  # about 73 years; leaves room below `NEVER` for a run after the last arrival

_DURATION_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
}
_SIZE_BYTES = {
    "": 1,
    "B": 1,
    **{f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGTP")},
    "KB": 1000,
    **{f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGTP")},
}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-zµ]*)")
_DECIMAL = re.compile(r"([0-9]{1,18})(?:\.([0-9]{0,30}))?")
_SCIENTIFIC = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,30})?[eE][+-]?[0-9]{1,2}")
_RATIO = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?(?:/[0-9]{1,12})?")
_WIDE = Context(prec=100, rounding=ROUND_HALF_EVEN)


def _quantity(text: str, units: dict[str, int], place: str, example: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise BadInput(place, text, "not a number with a unit", f"write it like {example}; units: {_names(units)}")
    value = Fraction(match[1]) * units[match[2]]
    if value.denominator != 1:
        raise BadInput(
            place, text, "finer than the smallest unit", f"write a whole number of {next(u for u in units if u)}"
        )
    if value >= MAX_TIME_NS:
        raise BadInput(place, text, "too large", f"stay below {MAX_TIME_NS} in the smallest unit")
    return value.numerator


def _names(units: dict[str, int]) -> str:
    return ", ".join(u for u in units if u)


def parse_duration_ns(text: str, place: str = "duration") -> int:
    """`2us`, `50ms`, `1.5s`, `0` → ns, exactly. BadInput names `place` when it is no duration or finer than 1 ns."""
    if text.strip() == "0":
        return 0
    return _quantity(text, _DURATION_NS, place, "2us, 50ms or 1.5s")


def parse_bytes(text: str, place: str = "size") -> int:
    """`44GB`, `16GiB`, `1024` → bytes, exactly (kB is 1000 B, KiB is 1024 B)."""
    return _quantity(text, _SIZE_BYTES, place, "44GB, 16GiB or 1024")


def parse_ratio(text: str, place: str) -> Fraction:
    """A positive decimal (`1.5`) or fraction (`3/2`), exactly."""
    text = text.strip()
    numerator, _, denominator = text.partition("/")
    if _RATIO.fullmatch(text) and (not denominator or int(denominator)) and Fraction(numerator):
        return Fraction(numerator) / int(denominator or "1")
    raise BadInput(place, text, "not a positive number", "write it like 4, 0.5 or 3/2")


def decimal_ns(text: str, unit_ns: int) -> int | None:
    """A non-negative decimal text in units of `unit_ns` → ns; what is finer than 1 ns is rounded half-even, once.

    None when the text is no such number (the caller knows the place) or reaches `MAX_TIME_NS`.
    """
    match = _DECIMAL.fullmatch(text)
    if match is None:
        if not _SCIENTIFIC.fullmatch(text):
            return None
        value = int(_WIDE.to_integral_value(_WIDE.multiply(Decimal(text), Decimal(unit_ns))))
    else:
        value = int(match[1]) * unit_ns
        if match[2]:
            value += rounded_ratio(int(match[2]) * unit_ns, 10 ** len(match[2]))
    return value if value < MAX_TIME_NS else None


def rounded_ratio(numerator: int, denominator: int) -> int:
    """numerator / denominator, rounded half-even, in integers (numerator >= 0, denominator > 0)."""
    quotient, rest = divmod(numerator, denominator)
    twice = 2 * rest
    return quotient + (twice > denominator or (twice == denominator and quotient & 1))


def shorten(text: str, width: int) -> str:
    """At most `width` characters; what is cut shows as `...`."""
    return text if len(text) <= width else text[: width - 3] + "..."


def format_duration(ns: float) -> str:
    """Three significant figures and the unit that fits: `1.25 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= 0.9995 * size:
            return f"{_three(ns / size)} {unit}"
    return f"{_three(ns)} ns"


def format_bytes(size: float) -> str:
    """Three significant figures and a decimal unit: `15.7 GB`."""
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size) >= 0.9995 * scale:
            return f"{_three(size / scale)} {unit}"
    return f"{size:.0f} B"


def _three(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
