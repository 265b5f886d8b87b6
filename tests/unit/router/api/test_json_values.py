"""Values fit their schema, whatever it says and whatever the key is; what can't be followed is refused."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.api.json_values import MAX_VALUES, Maker
from router.api.shapes import text_of
from stageline.errors import BadInput

NODE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
    },
    "required": ["value", "next", "children"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "a record": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}},
        "required": ["a"],
    },
    "a tree": {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"},
    "a bounded integer": {"type": "integer", "minimum": 5, "maximum": 7},
    "an open interval": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "a narrow interval": {"type": "number", "minimum": 0.2, "maximum": 0.3},
    "negative": {"type": "integer", "maximum": -3},
    "a multiple": {"type": "integer", "multipleOf": 7, "exclusiveMinimum": 7},
    "halves": {"type": "number", "multipleOf": 0.5, "minimum": 0.25},
    "a short string": {"type": "string", "maxLength": 4},
    "a long string": {"type": "string", "minLength": 50},
    "a list": {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 3, "maxItems": 3},
    "a tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": False},
    "one of several types": {"type": ["string", "null"]},
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
            {"properties": {"b": {"const": 3}}, "required": ["b"]},
        ]
    },
    "any of, beside a type": {
        "type": "object",
        "anyOf": [
            {"properties": {"k": {"const": 1}}, "required": ["k"]},
            {"properties": {"j": {"const": 2}}, "required": ["j"]},
        ],
    },
    "all of, with the same member": {
        "$defs": {"A": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}},
        "allOf": [
            {"$ref": "#/$defs/A"},
            {
                "properties": {"a": {"type": ["integer", "null"], "maximum": 9}, "b": {"type": "null"}},
                "required": ["b"],
            },
        ],
    },
    "all of two references": {
        "$defs": {
            "A": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
            "B": {"type": "object", "properties": {"b": {"const": 2}}, "required": ["b"]},
        },
        "allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
    },
    "bounds from several places": {
        "type": "integer",
        "minimum": 1,
        "allOf": [{"minimum": 5, "maximum": 20}, {"maximum": 7}],
    },
    "an enumeration beside a type": {"type": "string", "enum": [1, "a", None, "bcd"], "maxLength": 2},
    "an enumeration beside bounds": {"enum": [1, 5, 9, True, "x"], "type": "number", "exclusiveMinimum": 1},
    "a set": {"type": "array", "items": {"enum": ["x", "y", "z"]}, "minItems": 3, "uniqueItems": True},
    "a set that may be small": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
    "a format of some length": {"type": "string", "format": "date", "minLength": 5},
    "a format": {"type": "string", "format": "date-time"},
    "members by name only": {"type": "object", "required": ["z"], "additionalProperties": {"type": "integer"}},
    "anything": {},
}


@pytest.mark.parametrize("name", SCHEMAS)
@given(key=st.integers(0, (1 << 64) - 1))
def test_a_value_fits_its_schema(name: str, key: int) -> None:
    schema = SCHEMAS[name]
    value = json.loads(text_of(Maker(schema, key, "schema").value()))
    jsonschema.validate(value, schema)
    assert value == json.loads(text_of(Maker(schema, key, "schema").value()))


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (False, "schema: not a schema"),
        ({"type": "text"}, r"schema\.type"),
        ({"pattern": "a+"}, r"schema\.pattern"),
        ({"type": "object", "maxProperties": 1}, r"schema\.maxProperties"),
        ({"type": "object", "dependencies": {"a": ["b"]}}, r"schema\.dependencies"),
        ({"$ref": "#a"}, "not a reference into this document"),
        ({"enum": [1, 2], "type": "string"}, r"schema\.enum"),
        ({"enum": [1], "minimum": "x"}, "wrong type"),
        ({"type": "string", "format": "uuid", "maxLength": 3}, r"schema\.format"),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2, "uniqueItems": True}, r"schema\.uniqueItems"),
        ({"$defs": {"A": {"$ref": "#/$defs/A"}}, "allOf": [{"$ref": "#/$defs/A"}]}, "refers to itself"),
        ({"enum": []}, r"schema\.enum"),
        ({"$ref": "#/$defs/X"}, "leads nowhere"),
        ({"$ref": "http://x/y"}, "not a reference into this document"),
        ({"$ref": "#"}, "levels"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "no number"),
        ({"type": "integer", "minimum": 10**30}, r"schema\.minimum"),
        ({"type": "number", "multipleOf": 0}, r"schema\.multipleOf"),
        ({"type": "string", "minLength": 10**9}, r"schema\.minLength"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, r"schema\.minLength"),
        ({"type": "string", "format": "regex"}, r"schema\.format"),
        ({"type": "array", "minItems": MAX_VALUES}, "more than"),
        ({"type": "array", "items": {"minItems": 50, "items": {"minItems": 60}}, "minItems": 9}, "more than"),
        ({"type": "object", "properties": 3}, "properties must be"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, r"schema\.required"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "differs"),
    ],
)  # fmt: skip
def test_what_can_not_be_followed_is_refused_with_its_place(schema: object, place: str) -> None:
    with pytest.raises(BadInput, match=place):
        Maker(schema, 1, "schema").value()
