"""Values that fit a JSON Schema: what a structured output says.

A value is drawn from a key, so it depends on prompt, seed and choice only. Supported is what structured outputs use:
types, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `prefixItems`, bounds of numbers,
lengths of strings and arrays, `uniqueItems`, common formats, `anyOf`, `oneOf`, `allOf`, `$ref` into the document. What
would constrain a value in another way is refused.
"""

import math
from fractions import Fraction
from itertools import count
from json import dumps
from typing import Any

from router.api.json_schema import allowed, joined, kind_of, length_at, limits, members, merged, number_at
from router.api.tokens import WORDS
from stageline.engine.rng import draw_at
from stageline.errors import BadInput

MAX_DEPTH = 32
_REDRAWN = 64  # times, for a list whose values must differ
MAX_VALUES = 2048  # of one document, so that no schema takes the server's time
MAX_CHARACTERS = 1 << 16  # of all its strings that have a least length
_OPTIONAL_DEPTH = 6  # below this, members that are not required are left out: a recursive schema must end
_REFUSED = (
    "pattern", "patternProperties", "propertyNames", "not", "if", "contains", "minProperties", "maxProperties",
    "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems",
    "additionalItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
_FORMATS = {
    "date-time": "2024-05-17T10:15:30Z", "date": "2024-05-17", "time": "10:15:30Z", "duration": "P3D",
    "email": "name@example.com", "hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
    "uri": "https://example.com/", "uuid": "6f1c1b2e-8d5c-4b5a-9c55-3a7d2f0e9b11",
}  # fmt: skip


class FreeText(str):
    """A string that may be longer: no enumeration, format or greatest length binds it."""

    __slots__ = ()


class Maker:
    """Makes one value. Raises BadInput, naming the place inside the schema, for what it can't follow."""

    def __init__(self, schema: Any, key: int, place: str, values: int = MAX_VALUES) -> None:
        self._root, self._key, self._place, self._most = schema, key, place, min(values, MAX_VALUES)
        self._position = count(1 << 32)  # beyond the positions that texts draw at
        self._values = self._characters = 0

    def value(self) -> Any:
        """The value; strings that may be longer are FreeText."""
        return self._make(self._root, 0, self._place)

    def _draw(self, below: int) -> int:
        return draw_at(self._key, next(self._position)) % below

    def _make(self, schema: Any, depth: int, place: str) -> Any:
        self._values += 1
        if depth > MAX_DEPTH:
            raise BadInput(place, None, f"deeper than {MAX_DEPTH} levels", "a recursion must be able to end")
        if self._values > self._most:
            raise BadInput(place, None, f"the output would have more than {self._most} values", "ask for fewer")
        if schema is True or schema == {}:
            return self._words(1, 3)
        if not isinstance(schema, dict):
            raise BadInput(place, None, "not a schema that a value can fit", "give a JSON object")
        if refused := next((name for name in _REFUSED if name in schema), None):
            raise BadInput(f"{place}.{refused}", None, "is not emulated", "leave it out")
        if "$ref" in schema:
            return self._make(joined(schema, "$ref", self._referred(schema["$ref"], place), place), depth + 1, place)
        if "const" in schema or "enum" in schema:
            return self._chosen(schema, place)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                number = self._which(members(schema[name], f"{place}.{name}"), depth)
                chosen, inner = schema[name][number], f"{place}.{name}[{number}]"
                return self._make(joined(schema, name, chosen, inner), depth + 1, inner)
        if "allOf" in schema:
            parts = [self._resolved(part, place) for part in members(schema["allOf"], f"{place}.allOf")]
            return self._make(merged(schema | {"allOf": parts}, f"{place}.allOf"), depth + 1, place)
        return self._typed(schema, depth, place)

    def _chosen(self, schema: dict[str, Any], place: str) -> Any:
        """One of the values of `enum`, or that of `const`, which what stands beside it allows."""
        name = "const" if "const" in schema else "enum"
        values = [schema["const"]] if name == "const" else members(schema["enum"], f"{place}.enum")
        try:
            fitting = [value for value in values if allowed(value, schema)]
        except TypeError:
            raise BadInput(place, None, f"what stands beside {name} is of the wrong type") from None
        if not fitting:
            raise BadInput(f"{place}.{name}", None, "no value has the type and the bounds beside it")
        return fitting[self._draw(len(fitting))]

    def _resolved(self, schema: Any, place: str) -> Any:
        """A schema whose own reference is followed, so that it can be merged with others."""
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = joined(schema, "$ref", self._referred(schema["$ref"], place), place)
        raise BadInput(f"{place}.$ref", None, "refers to itself")

    def _which(self, choices: list[Any], depth: int) -> int:
        """The number of a choice; deep down the shortest that refers to no other schema, so that recursions end."""
        if depth >= _OPTIONAL_DEPTH:
            ends = [i for i, choice in enumerate(choices) if "$ref" not in str(choice)]
            if ends:
                return min(ends, key=lambda i: len(str(choices[i])))
        return self._draw(len(choices))

    def _typed(self, schema: dict[str, Any], depth: int, place: str) -> Any:
        kinds = schema.get("type") or kind_of(schema)
        if isinstance(kinds, list):
            kinds = kinds[0] if kinds else "null"
        match kinds:
            case "object":
                return self._object(schema, depth, place)
            case "array":
                return self._array(schema, depth, place)
            case "string":
                return self._string(schema, place)
            case "integer" | "number":
                return self._number(schema, place, whole=kinds == "integer")
            case "boolean":
                return bool(self._draw(2))
            case "null":
                return None
        raise BadInput(f"{place}.type", kinds, "not a type of JSON")

    def _object(self, schema: dict[str, Any], depth: int, place: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise BadInput(place, None, "properties must be an object and required a list")
        names = [name for name in properties if depth < _OPTIONAL_DEPTH or name in required]
        found = {name: self._make(properties[name], depth + 1, f"{place}.properties.{name}") for name in names}
        more = schema.get("additionalProperties", True)
        for name in required:
            if name not in found:
                if more is False or not isinstance(name, str):
                    raise BadInput(f"{place}.required", name, "no member of properties")
                found[name] = self._make(more, depth + 1, f"{place}.additionalProperties")
        return found

    def _array(self, schema: dict[str, Any], depth: int, place: str) -> list[Any]:
        first = schema.get("prefixItems", [])
        least, most = length_at(schema, "minItems", 0, place), length_at(schema, "maxItems", MAX_VALUES, place)
        if least > most:
            raise BadInput(f"{place}.minItems", least, f"more than maxItems ({most})")
        items = schema.get("items", True)
        wanted = min(most, max(least, len(first), 0 if items is False or depth >= _OPTIONAL_DEPTH else 2))
        found = [self._make(one, depth + 1, f"{place}.prefixItems") for one in first[:wanted]]
        while len(found) < wanted:
            found.append(self._make(items, depth + 1, f"{place}.items"))
        if schema.get("uniqueItems"):
            self._differ(found, items, depth, place, least)
        return found

    def _differ(self, found: list[Any], items: Any, depth: int, place: str, least: int) -> None:
        """Replace values that are there already, as far as that many are needed; leave out others."""
        different: dict[str, Any] = {}
        for number, first in enumerate(found):
            value = first
            for _ in range(_REDRAWN if number < least else 0):
                if dumps(value, sort_keys=True) not in different:
                    break
                value = self._make(items, depth + 1, f"{place}.items")
            different.setdefault(dumps(value, sort_keys=True), value)
        if len(different) < least:
            raise BadInput(f"{place}.uniqueItems", None, f"{least} different values were not found", "ask for fewer")
        found[:] = different.values()

    def _string(self, schema: dict[str, Any], place: str) -> str:
        if (form := schema.get("format")) is not None:
            if form not in _FORMATS:
                raise BadInput(f"{place}.format", form, f"not one of {', '.join(_FORMATS)}")
            if not allowed(_FORMATS[form], schema):
                raise BadInput(f"{place}.format", form, "does not go with the lengths beside it", "leave them out")
            return _FORMATS[form]
        least, most = length_at(schema, "minLength", 0, place), length_at(schema, "maxLength", 1 << 31, place)
        if least > most:
            raise BadInput(f"{place}.minLength", least, f"more than maxLength ({most})")
        self._characters += least
        if self._characters > MAX_CHARACTERS:
            raise BadInput(f"{place}.minLength", least, f"strings of more than {MAX_CHARACTERS} characters in all")
        text: str = self._words(1 + least // 4, 3 + least // 4)
        while len(text) < least:
            text += " " + self._words(1, 3)
        return FreeText(text) if "maxLength" not in schema else text[:most]

    def _words(self, least: int, most: int) -> FreeText:
        number = least + self._draw(most - least + 1)
        return FreeText(" ".join(WORDS[self._draw(len(WORDS))] for _ in range(number)))

    def _number(self, schema: dict[str, Any], place: str, *, whole: bool) -> int | float:
        """A multiple of the step (1 where none is given) within the bounds, else the middle of the bounds."""
        (lower, open_lower), (upper, open_upper) = limits(schema, place)
        step = number_at(schema, "multipleOf", place)
        if step is not None and step <= 0:
            raise BadInput(f"{place}.multipleOf", schema["multipleOf"], "not above 0")
        unit = step or Fraction(1)
        first, last = math.ceil(lower / unit), math.floor(upper / unit)
        first += open_lower and first * unit == lower
        last -= open_upper and last * unit == upper
        if whole:  # multiples that are whole numbers
            unit *= unit.denominator
            first, last = math.ceil(first * (step or 1) / unit), math.floor(last * (step or 1) / unit)
        if first <= last:
            found = (first + self._draw(min(last - first + 1, 100))) * unit
            return int(found) if found.denominator == 1 else float(found)
        if whole or step is not None or lower >= upper:
            raise BadInput(place, None, "no number is within its bounds")
        return float((lower + upper) / 2)

    def _referred(self, reference: Any, place: str) -> Any:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise BadInput(f"{place}.$ref", reference, "not a reference into this document", "write it like #/$defs/X")
        found = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise BadInput(f"{place}.$ref", reference, "leads nowhere")
            found = found[name]
        return found
