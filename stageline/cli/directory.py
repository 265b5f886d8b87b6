"""An output directory on the command line: an empty text is refused, for it would mean the current directory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cyclopts import Parameter, Token

from stageline.errors import BadInput


def _directory(kind: Any, tokens: Sequence[Token]) -> Path:
    if not tokens[0].value.strip():
        raise BadInput("-o", tokens[0].value, "it is empty", "name a directory; '.' is the current one")
    return Path(tokens[0].value)


DIRECTORY = Parameter(converter=_directory)
