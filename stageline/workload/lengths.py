"""Length distributions: functions from a 64-bit draw to a number of tokens."""

import math
from array import array
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

from stageline.engine.rng import STREAM_INPUT, STREAM_MAX_OUTPUT, STREAM_OUTPUT, draw_at, stream_key
from stageline.errors import BadInput
from stageline.workload.exact_math import exp, ln, normal
from stageline.workload.rows import MAX_TOKENS

Tokens = tuple[int, int, int]  # of the prompt, of the output, and the most that the output may have


class Length(Protocol):
    """The distribution of prompt or output lengths."""

    by_row: (
        bool  # picks a row of a trace; prompt and output then share a draw, so one file gives both from the same row
    )

    def tokens(self, draw: int) -> int:
        """Tokens (at least 1) for a 64-bit draw."""
        ...


class ConstantLength:
    """The same length for every request."""

    by_row = False

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def tokens(self, draw: int) -> int:
        """See Length."""
        return self._tokens


class UniformLength:
    """Whole numbers from low to high, both included: low + floor(draw * n / 2**64) for n values."""

    by_row = False

    def __init__(self, low: int, high: int) -> None:
        self._low, self._count = low, high - low + 1

    def tokens(self, draw: int) -> int:
        """See Length."""
        return self._low + (draw * self._count >> 64)


class LognormalLength:
    """exp(mu + sigma z), rounded, at least 1; `mean` is the mean of the distribution: mu = ln(mean) - sigma**2 / 2."""

    by_row = False

    def __init__(self, mean: Fraction, *, sigma: Fraction | None = None, cv: Fraction | None = None) -> None:
        variance = float(sigma) ** 2 if sigma is not None else ln(1.0 + float(cv or 0) ** 2)
        self._sigma = math.sqrt(variance)
        self._mu = ln(float(mean)) - 0.5 * variance

    def tokens(self, draw: int) -> int:
        """See Length."""
        return min(MAX_TOKENS, max(1, round(exp(min(700.0, self._mu + self._sigma * normal(draw))))))


class TraceLength:
    """A random row of a trace, all equally likely."""

    by_row = True

    def __init__(self, tokens: "array[int]") -> None:
        self._tokens = tokens

    def tokens(self, draw: int) -> int:
        """See Length."""
        return self._tokens[draw * len(self._tokens) >> 64]


class RequestLengths:
    """Tokens of prompt, output and largest output of the request at position `c` of stream `a` (a user, or 0).

    `max_output` None: every request asks for exactly what it gets. Else an output ends at its largest.
    """

    def __init__(self, seed: int, prompt: Length, output: Length, max_output: Length | None = None) -> None:
        self._seed = seed
        self._prompt, self._output, self._max_output = prompt, output, max_output
        self._output_stream = STREAM_INPUT if output.by_row else STREAM_OUTPUT

    def stream(self, a: int) -> Callable[[int], Tokens]:
        """A function from position to the tokens of stream `a`."""
        input_key = stream_key(self._seed, STREAM_INPUT, a, 0)
        output_key = stream_key(self._seed, self._output_stream, a, 0)
        prompt, output = self._prompt.tokens, self._output.tokens
        if self._max_output is None:

            def exact(c: int) -> Tokens:
                tokens = output(draw_at(output_key, c))
                return prompt(draw_at(input_key, c)), tokens, tokens

            return exact
        most = self._max_output.tokens
        most_key = stream_key(self._seed, STREAM_MAX_OUTPUT, a, 0)

        def limited(c: int) -> Tokens:
            limit = most(draw_at(most_key, c))
            return prompt(draw_at(input_key, c)), min(output(draw_at(output_key, c)), limit), limit

        return limited

    def at(self, a: int, c: int) -> Tokens:
        """The tokens of one request."""
        return self.stream(a)(c)


def checked_tokens(value: int, place: str) -> int:
    """Returns a value from 1 to MAX_TOKENS. Raises BadInput for any other."""
    if not 1 <= value <= MAX_TOKENS:
        raise BadInput(place, value, f"not between 1 and {MAX_TOKENS} tokens", "give a positive number of tokens")
    return value
