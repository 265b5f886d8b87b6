"""Parses durations, rates, token counts and decimal numbers into exact integers, and formats them for tables.

Parsing uses no floats: a decimal text becomes an integer of ns, bytes/s or tokens, or is refused.
"""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from stageline.errors import BadInput

NS_PER_S = 1_000_000_000
MAX_TIME_NS = 1 << 61  # about 73 years; the rest up to `NEVER` is for the run after the last arrival

_DURATION_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
}
_RATE_BYTES_PER_S = {
    "B/s": 1,
    "KB/s": 10**3,
    "MB/s": 10**6,
    "GB/s": 10**9,
    "TB/s": 10**12,
    "Mbit/s": 125_000,
    "Gbit/s": 125_000_000,
}
_SIZE_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "GiB": 1 << 30, "TiB": 1 << 40}
_TOKENS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_GROUPED = r"[0-9]{1,3}(?:,[0-9]{3}){1,60}|[0-9]{1,3}(?:_[0-9]{3}){1,60}"  # 131,072, but not 1,5: no decimal comma
_QUANTITY = re.compile(rf"((?:{_GROUPED}|[0-9]{{1,200}})(?:\.[0-9]{{1,200}})?)\s*([A-Za-zµ/]*)")
_DECIMAL = re.compile(r"([0-9]{1,18})(?:\.([0-9]{0,30}))?")
_SCIENTIFIC = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,30})?[eE][+-]?[0-9]{1,2}")
_RATIO = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?(?:/[0-9]{1,12})?")
_WIDE = Context(prec=100, rounding=ROUND_HALF_EVEN)


def _quantity(text: str, units: dict[str, int], place: str, example: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise BadInput(place, text, "not a number with a unit", f"write it like {example}; units: {_names(units)}")
    value = Fraction(re.sub("[,_]", "", match[1])) * units[match[2]]
    if value.denominator != 1:
        whole = f"write a whole number of {next(iter(units))}".removesuffix(" of ")
        raise BadInput(place, text, "finer than the smallest unit", whole)
    if value >= MAX_TIME_NS:
        raise BadInput(place, text, "too large", f"stay below {MAX_TIME_NS} in the smallest unit")
    return value.numerator


def _names(units: dict[str, int]) -> str:
    return ", ".join(u for u in units if u)


def parse_duration_ns(text: str, place: str = "duration") -> int:
    """`2us`, `50ms`, `1.5s`, `0` → ns, exactly. Raises BadInput at `place`, also for fractions of 1 ns."""
    if text.strip() == "0":
        return 0
    return _quantity(text, _DURATION_NS, place, "2us, 50ms or 1.5s")


def parse_rate_bytes_per_s(text: str, place: str = "rate") -> int:
    """`300GB/s`, `400Gbit/s` → bytes per second, exactly; prefixes are decimal. Raises BadInput, also for 0."""
    rate = _quantity(text, _RATE_BYTES_PER_S, place, "300GB/s or 400Gbit/s")
    if rate == 0:
        raise BadInput(place, text, "zero bandwidth", "give a rate such as 300GB/s")
    return rate


def parse_size_bytes(text: str, place: str = "size") -> int:
    """`256GB`, `64GiB` → bytes, exactly. Raises BadInput at `place`."""
    return _quantity(text, _SIZE_BYTES, place, "256GB or 64GiB")


def parse_tokens(text: str, place: str = "tokens") -> int:
    """`8192`, `128K` → tokens; prefixes are binary, as usual for context lengths. Raises BadInput."""
    return _quantity(text, _TOKENS, place, "8192 or 128K")


def parse_ratio(text: str, place: str) -> Fraction:
    """A positive decimal (`1.5`) or fraction (`3/2`), exactly. Raises BadInput at `place`."""
    text = text.strip()
    numerator, _, denominator = text.partition("/")
    if _RATIO.fullmatch(text) and (not denominator or int(denominator)) and Fraction(numerator):
        return Fraction(numerator) / int(denominator or "1")
    if re.fullmatch(r"[0-9.]+[eE][+-]?[0-9]+", text):
        raise BadInput(place, text, "written with an exponent", "write it out, like 1000, 0.001 or 1/3")
    if re.fullmatch(r"[0-9./]{13,}", text):
        raise BadInput(place, text, "has too many digits", "at most 12 before the point, after it and below the line")
    raise BadInput(place, text, "not a positive number", "write it like 4, 0.5 or 3/2")


def decimal_ns(text: str, unit_ns: int) -> int | None:
    """A non-negative decimal text in units of `unit_ns` → ns, rounded half-even once.

    None when the text is not such a number or reaches `MAX_TIME_NS`; the caller knows the place for an error.
    """
    match = _DECIMAL.fullmatch(text)
    if match is None:
        if not _SCIENTIFIC.fullmatch(text):
            return None
        value = int(_WIDE.to_integral_value(_WIDE.multiply(Decimal(text), Decimal(unit_ns))))
    else:
        whole, decimals = match[1], match[2] or ""
        value = rounded_ratio(int(whole + decimals) * unit_ns, 10 ** len(decimals))
    return value if value < MAX_TIME_NS else None


def rounded_ratio(numerator: int, denominator: int) -> int:
    """numerator / denominator, rounded half-even, in integers (numerator >= 0, denominator > 0)."""
    quotient, rest = divmod(numerator, denominator)
    twice = 2 * rest
    return quotient + (twice > denominator or (twice == denominator and quotient & 1))


def shorten(text: str, width: int) -> str:
    """Cuts a text to `width` characters, the last three of which are then `...`."""
    return text if len(text) <= width else text[: width - 3] + "..."


def counted(number: int, noun: str) -> str:
    """A number with its noun, which takes an s: 1 stage, 2 stages."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_duration(ns: float) -> str:
    """Three significant figures and a fitting unit: `1.25 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= 0.9995 * size:
            return f"{_three(ns / size)} {unit}"
    return f"{_three(ns)} ns"


def duration_text(ns: int) -> str:
    """Exact and as short as units allow, as `parse_duration_ns` reads it: `50us`, `1500ns`."""
    unit, size = next(
        (unit, size) for unit, size in (("s", NS_PER_S), ("ms", 10**6), ("us", 10**3), ("ns", 1)) if ns % size == 0
    )
    return f"{ns // size}{unit}"


def time_text(ns: int) -> str:
    """Two decimals and a fitting unit, for columns of numbers: `1.96 ms`."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= scale:
            return f"{ns / scale:,.2f} {unit}"
    return f"{ns:,} ns"


def bytes_text(size: int) -> str:
    """Two decimals and a decimal unit: `38.67 GB`."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= scale:
            return f"{size / scale:,.2f} {unit}"
    return f"{size:,} B"


def figure_text(value: float) -> str:
    """Three significant figures, never with an exponent: `1,420`, `12.3`, `0.00123`."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 or not value else f"{value:.8f}".rstrip("0").rstrip(".")


def _three(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
