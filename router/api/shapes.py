"""Outputs with a shape: JSON of a schema, or the call of a tool. The text decides how many tokens they have."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from router.api.json_values import FreeText, Maker
from router.api.tokenizer import Tokenizer
from stageline.engine.rng import draw_at
from stageline.errors import BadInput

MAX_WRITTEN_TOKENS = 1 << 17  # of one output with a shape, which is written as a whole when it is asked for
MAX_WRITTEN_VALUES = 1 << 14  # of all choices of a call
_POSITION = 1 << 33  # at which the choice of a tool is drawn


class ShapeOption(msgspec.Struct, frozen=True):
    """One thing that may be said: JSON that fits `schema`, as the arguments of the tool `tool` if that is a name."""

    schema: Any
    place: str  # of the schema in the request's body
    tool: str = ""


class Shape(msgspec.Struct, frozen=True):
    """What an output has to look like: one of `options`, drawn by the output's key."""

    options: tuple[ShapeOption, ...]

    def written(self, key: int, tokenizer: Tokenizer, tokens: int, choices: int = 1) -> "Written":
        """The output of one of `choices`. It gets `tokens` tokens if it is shorter and has a string that may grow.

        Raises BadInput for a schema that can't be followed.
        """
        if tokens > MAX_WRITTEN_TOKENS:
            reason = f"an output of a given shape has at most {MAX_WRITTEN_TOKENS} tokens"
            raise BadInput("max_tokens", tokens, reason)
        option = self.options[draw_at(key, _POSITION) % len(self.options)]
        value = Maker(option.schema, key, option.place, MAX_WRITTEN_VALUES // choices).value()
        lead = f"{option.tool} " if option.tool else ""
        pieces = tokenizer.pieces(lead + text_of(value))
        more = 0
        while len(pieces) < tokens:
            more += tokens - len(pieces)
            grown, free = _grown(value, "".join([tokenizer.word(key, 1 + i) for i in range(more)]))
            if not free:
                break
            pieces = tokenizer.pieces(lead + text_of(grown))
        return Written(_without(pieces, len(lead)), option.tool)


class Written(msgspec.Struct, frozen=True):
    """The text of each token. The tokens of a tool's name, which come first, have none."""

    words: tuple[str, ...]
    tool: str


def text_of(value: Any) -> str:
    """The JSON of a value, without spaces between members."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates of an enumeration
        return json.dumps(value, separators=(",", ":"))
    return text


def _grown(value: Any, more: str) -> tuple[Any, bool]:
    """The value with `more` at the end of its first string that may be longer; False: it has none."""
    if isinstance(value, FreeText):
        return FreeText(value + more), True
    if isinstance(value, dict):
        for name, member in value.items():
            grown, found = _grown(member, more)
            if found:
                return value | {name: grown}, True
    if isinstance(value, list):
        for number, member in enumerate(value):
            grown, found = _grown(member, more)
            if found:
                return [*value[:number], grown, *value[number + 1 :]], True
    return value, False


def _without(pieces: Sequence[str], characters: int) -> tuple[str, ...]:
    """The pieces without the first `characters` characters of their text."""
    words, at = [], 0
    for piece in pieces:
        words.append(piece[max(0, characters - at) :])
        at += len(piece)
    return tuple(words)
