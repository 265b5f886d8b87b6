"""The arguments of the API's functions, checked before anything is done with them: errors name the argument."""

import numbers
import os
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from stageline.errors import UsageError

NAMES = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    os.PathLike: "a path",
    Mapping: "a dictionary",
    type(None): "None",
}


def plain(value: object) -> object:
    """A number of numpy as Python's own; anything else as it is."""
    if isinstance(value, numbers.Integral) and not isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def shown(value: object) -> str:
    """A value as it was written, shortened."""
    return reprlib.repr(value)


def one_of(choices: Sequence[str]) -> str:
    """Choices in words: "a, b or c"."""
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)


def require(place: str, value: object, *kinds: type) -> Any:
    """The value, of one of the kinds; a whole number is also a number, but True is neither. Raises UsageError."""
    found = plain(value)
    accepted = (*kinds, int) if float in kinds else kinds
    if isinstance(found, accepted) and (not isinstance(found, bool) or bool in kinds):
        return found
    names = [NAMES.get(kind, f"a {kind.__name__}") for kind in kinds]
    raise UsageError(f"{place}={shown(value)}: give {one_of(names)}")


def require_flags(function: str, flags: Mapping[str, object]) -> None:
    """Every one is True or False, and no text that means one. Raises UsageError."""
    for name, value in flags.items():
        require(f"{function}: {name}", value, bool)


def require_path(place: str, value: object) -> Path:
    """A path, or a text that is one. Raises UsageError."""
    return Path(require_name(place, value))


def require_paths(place: str, value: object) -> list[Path]:
    """One path, or several. Raises UsageError."""
    several = [value] if isinstance(value, (str, os.PathLike)) else _items(place, value, "a path, or a list of paths")
    return [require_path(place, item) for item in several]


def require_names(place: str, value: object) -> list[str]:
    """One name, or several. Raises UsageError."""
    several = [value] if isinstance(value, (str, os.PathLike)) else _items(place, value, "a name, or a list of names")
    if not several:
        raise UsageError(f"{place}=[]: give a name, or a list of names")
    return [require_name(place, item) for item in several]


def require_name(place: str, value: object) -> str:
    """A name in a catalogue, or the path of a file. Raises UsageError."""
    text = str(require(place, value, str, os.PathLike))
    try:
        Path(text).exists()
    except OSError as error:  # a name that no file can have
        raise UsageError(f"{place}={shown(text)}: {error.strerror}") from None
    if "\0" in text:
        raise UsageError(f"{place}={shown(text)}: a path has no zero bytes")
    return text


def scale_text(place: str, value: object) -> str:
    """A factor as a text that `parse_ratio` takes: floats are written out. Raises UsageError."""
    scale = require(place, value, str, float, Fraction)
    return f"{Decimal(repr(scale)):f}" if isinstance(scale, float) else str(scale)


def require_counts(place: str, value: object, example: str) -> tuple[int, ...]:
    """Whole numbers: one, several, or a text with commas, as the command takes it. Raises UsageError."""
    way_out = f"a whole number, several, or a text such as {example!r}"
    if isinstance(value, numbers.Number):
        return (require(place, value, int),)
    several = value.split(",") if isinstance(value, str) else _items(place, value, way_out)
    return tuple(
        _count(place, value, item, way_out) if isinstance(item, str) else require(place, item, int) for item in several
    )


def require_range(place: str, value: object, most: int) -> tuple[int, ...]:
    """Whole numbers: one, several, or a text such as 4..16, as the command takes it. Raises UsageError."""
    if not isinstance(value, str) or ".." not in value:
        return require_counts(place, value, "4..16")
    way_out = "a whole number, or the smaller and the larger one of a range such as '4..16'"
    low, high = (_count(place, value, end, way_out) for end in value.split("..", 1))
    if not low <= high <= most:
        raise UsageError(f"{place}={value!r}: must lie between 1 and {most:,}, the smaller number first")
    return tuple(range(low, high + 1))


def _count(place: str, whole: object, part: str, way_out: str) -> int:
    if not re.fullmatch(r"\s*\d{1,9}\s*", part, re.ASCII):
        raise UsageError(f"{place}={shown(whole)}: give {way_out}")
    return int(part)


def _items(place: str, value: object, way_out: str) -> Sequence[object]:
    if isinstance(value, (bytes, bytearray)) or not isinstance(value, Iterable):
        raise UsageError(f"{place}={shown(value)}: give {way_out}")
    return list(value)
