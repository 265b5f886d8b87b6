"""Offered and served rate, apart: over the time in which requests arrived, without the drain after the last of them."""

from array import array

import msgspec

from stageline.engine.types import RequestRecord
from stageline.units import NS_PER_S


class SpanRates(msgspec.Struct, frozen=True, kw_only=True):
    """`arrivals` of summary.json. The span ends with the last arrival; what completes later was not served in it."""

    span_s: float
    offered_requests_per_s: float  # arrivals after the first / span
    served_requests_per_s: float  # completions in the span / span
    served_output_tokens_per_s: float  # tokens of the requests that completed in the span / span


class ArrivalSpan:
    """An accumulator of 16 bytes per request."""

    def __init__(self) -> None:
        self._first_ns: int | None = None
        self._last_ns = self._count = 0
        self._ends, self._tokens = array("q"), array("q")

    def request(self, record: RequestRecord) -> None:
        """Adds one record."""
        self._count += 1
        at = record.arrival_ns
        self._first_ns = at if self._first_ns is None else min(self._first_ns, at)
        self._last_ns = max(self._last_ns, at)
        if record.outcome == "finished" and record.last_token_ns is not None:
            self._ends.append(record.last_token_ns)
            self._tokens.append(record.output_tokens)

    def rates(self) -> SpanRates | None:
        """None when all requests arrived at once."""
        if self._first_ns is None or self._last_ns == self._first_ns:
            return None
        span_ns = self._last_ns - self._first_ns
        served = [tokens for end, tokens in zip(self._ends, self._tokens, strict=True) if end <= self._last_ns]
        return SpanRates(
            span_s=span_ns / NS_PER_S,
            offered_requests_per_s=(self._count - 1) * NS_PER_S / span_ns,
            served_requests_per_s=len(served) * NS_PER_S / span_ns,
            served_output_tokens_per_s=sum(served) * NS_PER_S / span_ns,
        )
