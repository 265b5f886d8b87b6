"""Decodes TOML into validated structs; errors name file and field."""

import tomllib
from typing import Any, TypeVar

import msgspec

from stageline.errors import BadInput

T = TypeVar("T")


def parse_toml(data: bytes, place: str) -> dict[str, Any]:
    """The raw document. Raises BadInput naming the line."""
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(place, None, f"not valid TOML: {error}") from None


def convert(document: Any, kind: type[T], place: str) -> T:
    """A document as a validated `kind`. Raises BadInput naming the path of the wrong field."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise BadInput(place, None, str(error)) from None
