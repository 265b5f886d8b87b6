"""What a JSON Schema says, keyword by keyword. Everything raises BadInput, naming the place inside the schema."""

from fractions import Fraction
from typing import Any

from stageline.errors import BadInput

_SAYING = {"title", "description", "default", "examples", "$schema", "$defs", "definitions", "$comment", "$id"}
_LEAST = {"minimum", "exclusiveMinimum", "minLength", "minItems"}
_MOST = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"}
_PYTHON = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_KINDS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "format"),
    "integer": (),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def kind_of(schema: dict[str, Any]) -> str:
    """The type of a schema that names none: the one that its keywords are for."""
    return next((kind for kind, names in _KINDS.items() if any(name in schema for name in names)), "string")


def joined(schema: dict[str, Any], name: str, chosen: Any, place: str) -> Any:
    """The chosen schema and what stands beside the keyword `name` in `schema`, as one."""
    beside = {key: value for key, value in schema.items() if key != name and key not in _SAYING}
    return merged({"allOf": [chosen], **beside}, place) if beside else chosen


def merged(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """The members of `allOf` and the schema itself as one: properties and required members add up."""
    found: dict[str, Any] = {}
    for part in (*members(schema["allOf"], place), {name: v for name, v in schema.items() if name != "allOf"}):
        if not isinstance(part, dict):
            raise BadInput(place, None, "not a list of schemas")
        for name, value in part.items():
            before = found.get(name)
            if name in _SAYING:
                continue
            both = value if before is None or before == value else _both(name, before, value)
            if both is None:
                raise BadInput(f"{place}: {name}", None, "differs between the schemas", "write them as one")
            found[name] = both
    return found


def _both(name: str, one: Any, other: Any) -> Any:
    """The value of a keyword that says what two values of it say together; None: there is none."""
    both: Any = None
    match one, other:
        case dict(), dict() if name == "properties":
            names = [key for key in one if key in other and one[key] != other[key]]
            both = one | other | {key: {"allOf": [one[key], other[key]]} for key in names}
        case list(), list() if name == "required":
            both = one + other
        case list(), list() if name == "enum":
            both = [value for value in one if value in other] or None
        case ((str() | list()), (str() | list())) if name == "type":
            kinds = [one] if isinstance(one, str) else one
            both = [kind for kind in kinds if kind in ([other] if isinstance(other, str) else other)] or None
        case ((int() | float()), (int() | float())) if name in _LEAST | _MOST:
            both = max(one, other) if name in _LEAST else min(one, other)
    return both


def allowed(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value that an enumeration or constant gives also has the type, the length and the bounds beside it."""
    kinds = schema.get("type")
    if kinds is not None and not any(_is(kind, value) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    size = len(value) if isinstance(value, str) else None
    if size is not None and not schema.get("minLength", 0) <= size <= schema.get("maxLength", size):
        return False
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and not schema.get("exclusiveMinimum", value - 1) >= value
        and not schema.get("exclusiveMaximum", value + 1) <= value
    )


def _is(kind: Any, value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    match kind:
        case "integer":
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, _PYTHON.get(kind, ()))


def limits(schema: dict[str, Any], place: str) -> tuple[tuple[Fraction, bool], tuple[Fraction, bool]]:
    """Least and greatest value, and whether each is itself excluded. Without bounds: 0 to 99."""
    names = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
    lows, highs = (
        [(v, n.startswith("ex")) for n in pair if (v := number_at(schema, n, place)) is not None] for pair in names
    )
    lower = max(lows, default=None)
    upper = min(((value, not excluded) for value, excluded in highs), default=None)
    if lower is None:
        lower = (min(Fraction(0), upper[0] - 99) if upper else Fraction(0), False)
    if upper is None:
        upper = (max(lower[0], Fraction(0)) + 99, True)
    return lower, (upper[0], not upper[1])


def number_at(schema: dict[str, Any], name: str, place: str) -> Fraction | None:
    value = schema.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= 1 << 63:
        raise BadInput(f"{place}.{name}", str(value)[:80], "not a number of at most 64 bits")
    return Fraction(str(value))


def length_at(schema: dict[str, Any], name: str, default: int, place: str) -> int:
    value = schema.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadInput(f"{place}.{name}", value, "not a whole number of at least 0")
    return value


def members(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise BadInput(place, None, "not a list with at least one member")
    return value
