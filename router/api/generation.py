"""Decides a request's output when it arrives, because the scheduler must know its length by then.

The number of output tokens is the first that applies of: the exact number in a header or field; with `ignore_eos`,
max_tokens; the router's length distribution or, with `echo`, the prompt's length, at most max_tokens; max_tokens;
DEFAULT_TOKENS. `min_tokens` may raise it, and a stop string that occurs in the output shortens it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec

from router.api.shapes import Shape
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
    shape: Shape | None = None  # what the output has to look like; None: text

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
    words: tuple[str, ...] | None = None  # the text of each token, again and again, if `key` does not decide it
    tokenizer: Tokenizer = SYNTHETIC  # makes the text from `key`
    tool: str = ""  # the text is the arguments of this tool

    def piece(self, position: int) -> str:
        """The text of one token."""
        words = self.words
        return self.tokenizer.word(self.key, position) if words is None else words[position % len(words)]

    def encoder(self) -> Callable[[int], bytes]:
        """A function of the position: the text of one token as a JSON string."""
        words = self.words
        if words is None:
            return partial(self.tokenizer.encoded, self.key)
        return lambda position: msgspec.json.encode(words[position % len(words)])

    def text(self, start: int, end: int) -> str:
        """The text of the tokens [start, end)."""
        if (words := self.words) is not None:
            if end <= len(words):
                return "".join(words[start:end])
            return "".join([words[i % len(words)] for i in range(start, end)])
        word, key = self.tokenizer.word, self.key
        return "".join([word(key, i) for i in range(start, end)])

    def said(self, tokens: int) -> str:
        """The first `tokens` tokens as the prompt of the conversation's next turn has them."""
        text = self.text(0, tokens)
        return f"{self.tool} {text}" if self.tool else text


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

    def drawn_for(self, params: GenerationParams) -> int:
        """What the distribution says for this request; 0 if there is none, or the request sets its length itself."""
        return 0 if params.exact_tokens or (params.ignore_eos and params.max_tokens) else self.draw()

    def output(self, params: GenerationParams, choice: int, *, drawn: int | None = None, choices: int = 1) -> Output:
        """The output of one choice of `choices`, which share what may be searched for stop texts and written.

        `drawn`: what `drawn_for` has found. Raises BadInput if min_tokens and max_tokens contradict each other.
        """
        if params.max_tokens and params.min_tokens > params.max_tokens:
            raise BadInput("min_tokens", params.min_tokens, f"more than max_tokens ({params.max_tokens})")
        drawn = self.drawn_for(params) if drawn is None else drawn
        output = self._shaped(params, choice, drawn, choices) if params.shape else self._text(params, choice, drawn)
        return _stopped(output, params, MAX_SEARCHED_TOKENS // choices) if params.stop else output

    def _text(self, params: GenerationParams, choice: int, drawn: int) -> Output:
        words = tuple(self._tokenizer.pieces(params.prompt_text)) if self.echo and params.prompt_text else None
        tokens = _tokens(params, drawn or (len(words) if words else 0) or params.max_tokens or DEFAULT_TOKENS)
        limit = params.exact_tokens or params.max_tokens
        return Output(
            tokens=tokens,
            max_tokens=max(tokens, params.max_tokens),
            reason="length" if limit and tokens >= limit else "stop",
            key=output_key(params.prompt, params.seed, choice),
            words=words,
            tokenizer=self._tokenizer,
        )

    def _shaped(self, params: GenerationParams, choice: int, drawn: int, choices: int) -> Output:
        """As long as what it says, or as the length that was drawn or asked for: then a string in it grows."""
        assert params.shape is not None
        key, limit = output_key(params.prompt, params.seed, choice), params.exact_tokens or params.max_tokens
        written = params.shape.written(key, self._tokenizer, _tokens(params, drawn), choices)
        tokens = min(len(written.words), limit or len(written.words))
        return Output(
            tokens=tokens,
            max_tokens=max(tokens, params.max_tokens),
            reason="length" if tokens < len(written.words) else "stop",
            key=key,
            words=written.words,
            tokenizer=self._tokenizer,
            tool=written.tool,
        )

    def shortened(self, output: Output, tokens: int) -> Output:
        """The output cut to `tokens`, where the model's context ends."""
        return msgspec.structs.replace(output, tokens=tokens, max_tokens=tokens, reason="length")


def _tokens(params: GenerationParams, tokens: int) -> int:
    """The length that was asked for exactly, else `tokens` within the request's bounds."""
    if params.exact_tokens:
        return params.exact_tokens
    if params.ignore_eos and params.max_tokens:
        return params.max_tokens
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
