"""The tokenizer that counts prompts and writes outputs: the synthetic one, or one from a tokenizer.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from router.api import tokens
from stageline.errors import UsageError


class Tokenizer(Protocol):
    """Counts texts and writes outputs. The text of n output tokens counts as n tokens."""

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def least(self, text: str) -> int:
        """A number of tokens that the text has at least, found without counting them."""
        ...

    def ids(self, text: str) -> list[int]:
        """The token ids of a text."""
        ...

    def pieces(self, text: str) -> Sequence[str]:
        """The text of each token; joined, they are the text."""
        ...

    def word(self, key: int, position: int) -> str:
        """The text of output token `position`; `key` is a random stream's, see `stageline.engine.rng`."""
        ...

    def encoded(self, key: int, position: int) -> bytes:
        """`word` as a JSON string."""
        ...


class SyntheticTokenizer:
    """See `router.api.tokens`. `word` and `encoded` run once per token, so they have no wrapper."""

    word = staticmethod(tokens.word)
    encoded = staticmethod(tokens.encoded_word)

    def count(self, text: str) -> int:
        """See Tokenizer."""
        return tokens.count(text)

    def least(self, text: str) -> int:
        """See Tokenizer."""
        return -(-len(text) // tokens.MAX_PIECE_CHARACTERS)

    def ids(self, text: str) -> list[int]:
        """See Tokenizer."""
        return [tokens.token_id(piece) for piece in tokens.pieces(text)]

    def pieces(self, text: str) -> Sequence[str]:
        """See Tokenizer."""
        return tokens.pieces(text)


SYNTHETIC = SyntheticTokenizer()


def open_tokenizer(path: Path | None) -> Tokenizer:
    """Opens a tokenizer.json; None: the synthetic one. Raises BadInput, or UsageError without the extra package."""
    if path is None:
        return SYNTHETIC
    try:
        from router.api.tokenizer_file import FileTokenizer  # noqa: PLC0415  (an extra)
    except ImportError:
        raise UsageError("--tokenizer needs an extra package: pip install 'stageline[tokenizer]'") from None
    return FileTokenizer(path)
