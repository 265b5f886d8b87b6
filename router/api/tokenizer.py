"""Which tokenizer counts prompts and spells outputs: the synthetic one, or that of a tokenizer.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from router.api import tokens
from stageline.errors import UsageError


class Tokenizer(Protocol):
    """Counts texts and spells outputs: the text of n output tokens counts as n tokens."""

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        ...

    def pieces(self, text: str) -> Sequence[str]:
        """The text of each token; together they are the text."""
        ...

    def word(self, key: int, position: int) -> str:
        """Output token number `position`; `key` is that of `stageline.engine.rng`."""
        ...

    def encoded(self, key: int, position: int) -> bytes:
        """The same as a JSON string."""
        ...


class SyntheticTokenizer:
    """See `router.api.tokens`. Its words are made for every token: without a call in between."""

    word = staticmethod(tokens.word)
    encoded = staticmethod(tokens.encoded_word)

    def count(self, text: str) -> int:
        """See Tokenizer."""
        return tokens.count(text)

    def ids(self, text: str) -> list[int]:
        """See Tokenizer."""
        return [tokens.token_id(piece) for piece in tokens.pieces(text)]

    def pieces(self, text: str) -> Sequence[str]:
        """See Tokenizer."""
        return tokens.pieces(text)


SYNTHETIC = SyntheticTokenizer()


def open_tokenizer(path: Path | None) -> Tokenizer:
    """The tokenizer of a file, or the synthetic one. Raises BadInput, or UsageError without the extra package."""
    if path is None:
        return SYNTHETIC
    try:
        from router.api.tokenizer_file import FileTokenizer  # noqa: PLC0415  (an extra)
    except ImportError:
        raise UsageError("--tokenizer needs a package more: pip install 'stageline[tokenizer]'") from None
    return FileTokenizer(path)
