"""A tokenizer.json, read with Hugging Face's library `tokenizers`.

Special tokens are neither added nor counted. Outputs consist of words that are one token each at any position, together
with the space before them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from tokenizers import Tokenizer as Loaded

from router.api.tokens import WORDS
from stageline.engine.rng import draw_at
from stageline.errors import BadInput

MIN_WORDS = 16  # fewer can't form a text
_MAX_TRIED = 20_000  # tokens of the vocabulary to try when too few common words fit
_PROBES, _PROBE_TOKENS = 8, 64
_LONGEST_WORD = 100  # characters of a word that WordPiece makes one unknown token of
_WAY_OUT = "give the tokenizer.json of a language model"


class FileTokenizer:
    """A Tokenizer. Raises BadInput for a file that can't be read, or whose words can't form outputs."""

    def __init__(self, path: Path) -> None:
        try:
            self._loaded = Loaded.from_file(str(path))
        except Exception as error:  # the library raises plain Exception for every error
            raise BadInput("--tokenizer", str(path), f"can't be read: {error}", _WAY_OUT) from None
        self._loaded.no_truncation()
        self._loaded.no_padding()
        self._longest = max(_LONGEST_WORD, *map(len, self._loaded.get_vocab()))
        self._words = self._outputs()
        if len(self._words) < MIN_WORDS or not self._adds_up():
            reason = f"has {len(self._words)} words that are one token at any position; outputs need {MIN_WORDS}"
            raise BadInput("--tokenizer", str(path), reason, _WAY_OUT)

    def count(self, text: str) -> int:
        """See Tokenizer."""
        return len(self.ids(text))

    def least(self, text: str) -> int:
        """See Tokenizer."""
        return -(-len(text) // self._longest)

    def ids(self, text: str) -> list[int]:
        """See Tokenizer."""
        return self._loaded.encode(_clean(text), add_special_tokens=False).ids

    def pieces(self, text: str) -> Sequence[str]:
        """See Tokenizer. A token ends where the next one starts, so no text is lost."""
        text = _clean(text)
        starts = [start for start, _ in self._loaded.encode(text, add_special_tokens=False).offsets]
        bounds = [0, *starts[1:], len(text)]
        return [text[a:b] for a, b in pairwise(bounds)]

    def word(self, key: int, position: int) -> str:
        """See Tokenizer."""
        text = self._words[draw_at(key, position) % len(self._words)]
        return f" {text}" if position else text

    def encoded(self, key: int, position: int) -> bytes:
        """See Tokenizer."""
        return msgspec.json.encode(self.word(key, position))

    def _outputs(self) -> tuple[str, ...]:
        """The words for outputs: common ones and, if too few of them fit, words of the vocabulary."""
        found = tuple(self._fitting(WORDS))
        return (
            found
            if len(found) >= MIN_WORDS
            else tuple(dict.fromkeys((*found, *self._fitting(self._vocabulary_words()))))
        )

    def _fitting(self, words: Iterable[str]) -> Iterator[str]:
        """The words that are one known token both at the beginning of a text and after another word."""
        for word in words:
            first, pair = self.ids(word), self.ids(f"{word} {word}")
            if len(first) == 1 and len(pair) == 2 and self._loaded.decode(pair).split() == [word, word]:
                yield word

    def _vocabulary_words(self) -> Iterator[str]:
        """Words of the vocabulary, in the order of their ids."""
        ids = range(min(self._loaded.get_vocab_size(), _MAX_TRIED))
        texts = (self._loaded.decode([one], skip_special_tokens=True).strip() for one in ids)
        return (text for text in texts if text.isalpha())

    def _adds_up(self) -> bool:
        """Tries whether texts of n words count as n tokens, which Tokenizer promises."""
        texts = ("".join(self.word(key, i) for i in range(_PROBE_TOKENS)) for key in range(_PROBES))
        return all(self.count(text) == _PROBE_TOKENS for text in texts)


def _clean(text: str) -> str:
    """Replaces lone surrogates, which JSON can contain and the library refuses."""
    return text.encode("utf-8", "replace").decode()
