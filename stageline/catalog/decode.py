"""Decodes TOML into validated structs; errors name file and field, and the fields that there are."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from stageline.errors import BadInput

T = TypeVar("T")

_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`(?: - at `.*`)?")


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
        unknown = _UNKNOWN.fullmatch(str(error))
        raise BadInput(place, None, str(error), _known(unknown[1], document, kind) if unknown else "") from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The start of a way out, if there are names that begin like this one or are close to it."""
    by_lower = {other.lower(): other for other in known}
    close = [other for other in by_lower if name and other.startswith(name.lower())]
    close = close[:3] or get_close_matches(name.lower(), by_lower, 2)
    return f"did you mean {' or '.join(by_lower[other] for other in close)}? " if close else ""


def _known(field: str, document: Any, kind: Any) -> str:
    """The fields of the struct that has no such field."""
    found = next(_refusing(field, document, kind), None)
    if found is None:
        return ""
    names = [f.encode_name for f in msgspec.structs.fields(found)]
    return f"{did_you_mean(field, names)}known: {', '.join(names)}"


def _refusing(field: str, value: Any, kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Struct types whose part of the document holds `field`, which they do not have; outermost first."""
    structs = [t for t in (kind, *get_args(kind)) if isinstance(t, type) and issubclass(t, msgspec.Struct)]
    if structs and isinstance(value, dict):
        tagged = [t for t in structs if t.__struct_config__.tag in (None, value.get("kind"))]
        for struct in tagged[:1]:
            written = {f.name: f.encode_name for f in msgspec.structs.fields(struct)}
            hints = {written[name]: hint for name, hint in get_type_hints(struct).items() if name in written}
            if field in value and field not in hints:
                yield struct
            for name, hint in hints.items():
                yield from _refusing(field, value.get(name), hint)
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            for part in get_args(kind):
                yield from _refusing(field, inner, part)
