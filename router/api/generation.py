"""Decides a request's output when it arrives, because the scheduler must know its length by then.

The number of output tokens is the first that applies of: the exact number in a header or field; with `ignore_eos`,
max_tokens; the router's length distribution or, with `echo`, the prompt's length, at most max_tokens; max_tokens;
DEFAULT_TOKENS. `min_tokens` may raise it, and a stop string that occurs in the output shortens it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec

from router.api.tokenizer import SYNTHETIC, Tokenizer
from router.api.tokens import output_key
from stageline.engine.rng import STREAM_OUTPUT, draw_at, stream_key
from stageline.errors import BadInput
from stageline.workload.length_text import parse_length
from stageline.workload.lengths import Length

# What one call may cost: the event loop serves everybody.
MAX_CHOICES = 128
MAX_SEARCHED_TOKENS = 1 << 15  # stop texts are searched in this many tokens, shared by all choices of a call
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1024
_SEARCH_BLOCK_TOKENS = 256
DEFAULT_TOKENS = 128  # if neither the request nor the router sets an output length
Reason = Literal["stop", "length"]


class GenerationParams(msgspec.Struct, frozen=True, kw_only=True):
    """What one request asks for. 0: not given."""

    prompt: bytes  # decides the output's text, with the seed: the prompt's text in UTF-8, or its ids as JSON
    prompt_tokens: int
    ids: tuple[int, ...] = ()  # the prompt, if it came as token ids
    prompt_text: str | None = None  # the prompt, if it came as text
    before_answer: str = ""  # what the next turn's prompt has between this prompt and its answer
    max_tokens: int = 0
    min_tokens: int = 0
    exact_tokens: int = 0
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    seed: int = 0

    def token_ids(self, tokenizer: Tokenizer) -> Sequence[int]:
        """The prompt as token ids."""
        return self.ids or tokenizer.ids(self.prompt.decode("utf-8", "surrogatepass"))

    def next_ids(self, answer: str, tokenizer: Tokenizer) -> Sequence[int]:
        """How the prompt of the next turn begins, as token ids: this prompt and its answer."""
        if self.ids:
            return (*self.ids, *tokenizer.ids(answer))
        return tokenizer.ids(self.prompt.decode("utf-8", "surrogatepass") + self.before_answer + answer)


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """One choice: its length, finish reason, and text by position."""

    tokens: int
    max_tokens: int
    reason: Reason
    key: int
    words: tuple[str, ...] | None = None  # the text of each token, if `key` does not decide it
    tokenizer: Tokenizer = SYNTHETIC  # makes the text from `key`

    def piece(self, position: int) -> str:
        """The text of one token."""
        return self.words[position] if self.words is not None else self.tokenizer.word(self.key, position)

    def encoder(self) -> Callable[[int], bytes]:
        """A function of the position: the text of one token as a JSON string."""
        words = self.words
        if words is None:
            return partial(self.tokenizer.encoded, self.key)
        return lambda position: msgspec.json.encode(words[position])

    def text(self, start: int, end: int) -> str:
        """The text of the tokens [start, end)."""
        if self.words is not None:
            return "".join(self.words[start:end])
        word, key = self.tokenizer.word, self.key
        return "".join([word(key, i) for i in range(start, end)])


def checked_stops(stops: Sequence[str]) -> tuple[str, ...]:
    """The stop texts of a request, without empty ones. Raises BadInput for too many or too long ones."""
    if len(stops) > MAX_STOPS:
        raise BadInput("stop", len(stops), f"more than {MAX_STOPS} stop texts")
    longest = max(map(len, stops), default=0)
    if longest > MAX_STOP_CHARACTERS:
        raise BadInput("stop", longest, f"a stop text of more than {MAX_STOP_CHARACTERS} characters", "shorten it")
    return tuple(stop for stop in stops if stop)


class OutputLengths:
    """The router's rule for outputs: `max` (the request's max_tokens), `echo` (its prompt), or a distribution."""

    def __init__(self, text: str, seed: int, tokenizer: Tokenizer = SYNTHETIC) -> None:
        self.echo, self._tokenizer = text == "echo", tokenizer
        self._length: Length | None = None
        if text not in ("max", "echo"):
            spec = text.removeprefix("constant:")
            self._length = parse_length(spec, f"--output-lengths {text!r}")
        self._key = stream_key(seed, STREAM_OUTPUT, 0, 0)
        self._drawn = 0

    def draw(self) -> int:
        """Draws the next request's length; 0 without a distribution."""
        if self._length is None:
            return 0
        self._drawn += 1
        return self._length.tokens(draw_at(self._key, self._drawn - 1))

    def output(self, params: GenerationParams, choice: int, searched: int = MAX_SEARCHED_TOKENS) -> Output:
        """The output of one choice; stop texts are looked for in its first `searched` tokens.

        Raises BadInput if min_tokens and max_tokens contradict each other.
        """
        if params.max_tokens and params.min_tokens > params.max_tokens:
            raise BadInput("min_tokens", params.min_tokens, f"more than max_tokens ({params.max_tokens})")
        words = tuple(self._tokenizer.pieces(params.prompt_text)) if self.echo and params.prompt_text else None
        tokens = self._tokens(params, len(words) if words else 0)
        most = max(tokens, params.max_tokens)
        if words is not None:
            words = tuple(words[i % len(words)] for i in range(tokens))
        limit = params.exact_tokens or params.max_tokens
        reason: Reason = "length" if limit and tokens >= limit else "stop"
        key = output_key(params.prompt, params.seed, choice)
        output = Output(tokens=tokens, max_tokens=most, reason=reason, key=key, words=words, tokenizer=self._tokenizer)
        return _stopped(output, params, searched) if params.stop else output

    def shortened(self, output: Output, tokens: int) -> Output:
        """The output cut to `tokens`, where the model's context ends."""
        return msgspec.structs.replace(output, tokens=tokens, max_tokens=tokens, reason="length")

    def _tokens(self, params: GenerationParams, echoed: int) -> int:
        if params.exact_tokens:
            return params.exact_tokens
        if params.ignore_eos and params.max_tokens:
            return params.max_tokens
        tokens = self.draw() or echoed or params.max_tokens or DEFAULT_TOKENS
        tokens = max(tokens, params.min_tokens)
        return min(tokens, params.max_tokens) if params.max_tokens else tokens


def _stopped(output: Output, params: GenerationParams, searched: int) -> Output:
    """Cuts the output before the first stop text. The token that completes the stop text still counts as produced.

    The text is searched once, block by block; only a block that has a stop text is looked at token by token.
    """
    tokens, overlap, text = min(output.tokens, searched), max(map(len, params.stop)) - 1, ""
    ends: list[int] = []
    for start in range(0, tokens, _SEARCH_BLOCK_TOKENS):
        before, first = max(0, len(text) - overlap), len(ends)
        block = [output.piece(position) for position in range(start, min(tokens, start + _SEARCH_BLOCK_TOKENS))]
        for length in map(len, block):
            ends.append((ends[-1] if ends else 0) + length)
        text += "".join(block)
        if len(ends) < params.min_tokens or all(text.find(stop, before) < 0 for stop in params.stop):
            continue
        for position in range(max(first, params.min_tokens - 1), len(ends)):
            begin = max(0, (ends[position - 1] if position else 0) - overlap)
            found = [at for stop in params.stop if (at := text.find(stop, begin, ends[position])) >= 0]
            if found:
                return _cut(output, ends[: position + 1], text, min(found))
    return output


def _cut(output: Output, ends: list[int], text: str, at: int) -> Output:
    """Keeps the text before `at`; tokens after it count, but have no text."""
    starts = [0, *ends[:-1]]
    words = tuple(text[min(a, at) : min(b, at)] for a, b in zip(starts, ends, strict=True))
    return msgspec.structs.replace(output, tokens=len(ends), reason="stop", words=words)
