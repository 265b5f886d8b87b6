"""Quantities as people type them: 2us, 300GB/s, 128K. Decimal prefixes for bytes and rates, binary ones for tokens."""

import re
from decimal import Decimal, InvalidOperation

from stageline.errors import UsageError

TIMES = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
RATES = {"B/s": Decimal(1), "KB/s": Decimal(10**3), "MB/s": Decimal(10**6), "GB/s": Decimal(10**9)}
RATES |= {"TB/s": Decimal(10**12), "Mbit/s": Decimal(125_000), "Gbit/s": Decimal(125_000_000)}
TOKENS = {"": 1, "K": 1 << 10, "M": 1 << 20}
LARGEST = 1 << 62


def duration_ns(text: str, flag: str) -> int:
    """ "2us" -> 2000. Raises UsageError."""
    return _quantity(text, flag, {k: Decimal(v) for k, v in TIMES.items()}, "a time such as 2us or 1.5ms")


def rate_bytes_per_s(text: str, flag: str) -> int:
    """ "300GB/s" -> 300_000_000_000. Raises UsageError."""
    rate = _quantity(text, flag, RATES, "a rate such as 300GB/s or 400Gbit/s")
    if rate == 0:
        raise UsageError(f"{flag}: {text!r} is no bandwidth; give a rate such as 300GB/s")
    return rate


def tokens(text: str, flag: str) -> int:
    """ "128K" -> 131072. Raises UsageError."""
    return _quantity(text, flag, {k: Decimal(v) for k, v in TOKENS.items()}, "a number of tokens such as 8192 or 128K")


def _quantity(text: str, flag: str, units: dict[str, Decimal], expected: str) -> int:
    match = re.fullmatch(r"\s*([0-9][0-9_,]*\.?[0-9]*)\s*(\D*)", text)
    unit = match[2].strip() if match else ""
    if not match or unit not in units:
        raise UsageError(f"{flag}: {text!r} is not {expected}")
    try:
        value = Decimal(match[1].replace(",", "").replace("_", "")) * units[unit]
    except InvalidOperation:
        raise UsageError(f"{flag}: {text!r} is not {expected}") from None
    if value != value.to_integral_value() or value > LARGEST:
        raise UsageError(f"{flag}: {text!r} is finer or larger than Stageline counts; give {expected}")
    return int(value)


def bytes_text(size: int) -> str:
    """Bytes for people, decimal."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= scale:
            return f"{size / scale:,.2f} {unit}"
    return f"{size:,} B"


def time_text(ns: int) -> str:
    """Nanoseconds for people."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= scale:
            return f"{ns / scale:,.2f} {unit}"
    return f"{ns:,} ns"
