"""Numbers on the command line: whole ones are not rounded, and what is wrong is named by the flag as it was written."""

import math
import re
from collections.abc import Sequence
from typing import Any

from cyclopts import Parameter, Token

from stageline.errors import BadInput

_WHOLE = re.compile(r"[+-]?[0-9][0-9_]*")
_MAX_DIGITS = 30


def _whole(kind: Any, tokens: Sequence[Token]) -> int:
    text, place = tokens[0].value.strip(), _place(tokens[0])
    if not _WHOLE.fullmatch(text):
        raise BadInput(place, text, "not a whole number", "write it like 8")
    if len(text) > _MAX_DIGITS:
        raise BadInput(place, text[:_MAX_DIGITS] + "...", f"too large: {len(text)} digits", "give a smaller number")
    return int(text)


def _decimal(kind: Any, tokens: Sequence[Token]) -> float:
    text, place = tokens[0].value.strip(), _place(tokens[0])
    try:
        value = float(text)
    except ValueError:
        raise BadInput(place, text, "not a number", "write it like 0.5") from None
    if not math.isfinite(value):
        raise BadInput(place, text, "not a finite number", "write it like 0.5")
    return value


def _place(token: Token) -> str:
    """The flag, or the argument's name."""
    return token.keyword or "argument"


WHOLE = Parameter(converter=_whole)
DECIMAL = Parameter(converter=_decimal)
