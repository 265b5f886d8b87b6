"""The content of prompts: of an exact length, different for every request, equal only where a trace says so.

There are two alphabets: token ids from 1000 to 9999, which every vocabulary has, and English words of four letters,
which are one token each in common vocabularies and in Stageline's. Every token is four characters and a separator, so
any run of tokens is a slice of one long table. A run begins with a few tokens that spell the hash of its name, so that
two names never share a first block; the rest is the table from an offset that the hash picks.
"""

from collections.abc import Sequence

from stageline.engine.rng import STREAM_PROMPT, draw_at, stream_key
from stageline.engine.types import Request

WIDTH = 5
_TABLE_TOKENS = 1 << 14
_HEAD_TOKENS = 6
_TEXT = """
able area army away baby back ball band bank base bear beat been best bird blue boat body bone book born both
busy call calm came camp card care case cash city club coal coat cold come cook cool copy corn cost crew crop
dark data date dawn deal dear deep desk dish door down draw drop drum dust duty each earn east easy edge else
even ever exit face fact fair fall farm fast fear feed feel feet fell file fill film find fine fire firm fish
five flat flow food foot form four free from fuel full game gate gave gift girl give glad goal goes gold golf
gone good gray grew grow hair half hall hand hang
"""
_WORDS = tuple(_TEXT.split())


class Alphabet:
    """Runs of tokens as text, `WIDTH` characters per token; a run ends with a separator, which callers drop."""

    def __init__(self, items: Sequence[str], separator: str, seed: int) -> None:
        self._items, self._separator = items, separator
        self._names = stream_key(seed, STREAM_PROMPT, 0, 0)
        self._shared = stream_key(seed, STREAM_PROMPT, 1, 0)
        key = stream_key(seed, STREAM_PROMPT, 2, 0)
        table = "".join(self._token(draw_at(key, i)) for i in range(_TABLE_TOKENS))
        self._table = table + table

    def own(self, name: int, tokens: int) -> str:
        """A run of tokens that belongs to this name alone."""
        return self._run(draw_at(self._names, name), tokens)

    def shared(self, name: int, tokens: int) -> str:
        """Like `own`, but in a separate namespace: blocks that prompts may share."""
        return self._run(draw_at(self._shared, name), tokens)

    def _token(self, draw: int) -> str:
        return self._items[draw % len(self._items)] + self._separator

    def _run(self, draw: int, tokens: int) -> str:
        head, rest = "", draw
        for _ in range(min(_HEAD_TOKENS, tokens)):
            rest, digit = divmod(rest, len(self._items))
            head += self._token(digit)
        start = draw % _TABLE_TOKENS * WIDTH
        tail = (tokens - _HEAD_TOKENS) * WIDTH
        if tail <= 0:
            return head
        first = self._table[start : start + tail]
        more, left = divmod(tail - len(first), len(self._table))
        return head + first + self._table * more + self._table[:left]


def id_alphabet(seed: int) -> Alphabet:
    """Token ids. A run without its last separator is the inside of a JSON list."""
    return Alphabet([str(i) for i in range(1000, 10000)], ",", seed)


def word_alphabet(seed: int) -> Alphabet:
    """English words."""
    return Alphabet(_WORDS, " ", seed)


def prompt_of(request: Request, alphabet: Alphabet, block_tokens: int, turn: int = 0, less_tokens: int = 0) -> str:
    """The new tokens of one turn, each with its separator: the request's prompt tokens less `less_tokens`, at least 1.

    `less_tokens` is what the server's template adds. In the first turn the trace's hash ids name blocks of
    `block_tokens` tokens; the rest belongs to the request alone.
    """
    tokens = max(1, request.prompt_tokens - less_tokens)
    parts, left = list[str](), tokens
    if block_tokens and not turn:
        for name in request.hash_ids:
            if left <= 0:
                break
            parts.append(alphabet.shared(name & (1 << 64) - 1, min(block_tokens, left)))
            left -= min(block_tokens, left)
    if left:
        parts.append(alphabet.own(request.index << 16 | turn, left))
    return "".join(parts)
