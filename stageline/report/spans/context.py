"""W3C trace context: the caller's trace, and the ids of traces that begin here.

https://www.w3.org/TR/trace-context/: `00-<32 hex: trace>-<16 hex: parent span>-<2 hex: flags>`; a later version may
carry more after that. A malformed header is ignored.
"""

import re
from hashlib import blake2b

import msgspec

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
DEFAULT_RATIO = 0.01  # of traces that begin here
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


class TraceContext(msgspec.Struct, frozen=True):
    """A span of the caller that a request belongs to."""

    trace_id: int  # 128 bits, not 0
    span_id: int  # 64 bits, not 0
    sampled: bool
    state: str = ""  # tracestate, passed on unchanged


def parse_traceparent(text: str | None, state: str = "") -> TraceContext | None:
    """The caller's context, or None when there is none or it is malformed."""
    found = _FORM.fullmatch(text.strip()) if text else None
    if found is None:
        return None
    version, trace_id, span_id = found[1], int(found[2], 16), int(found[3], 16)
    if version == "ff" or (version == "00" and found[5]) or not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED), state)


class Sampler:
    """Which traces are kept, and their ids: a hash of their origin, so that the same run has the same ids.

    A caller's sampled flag decides for its own traces. A trace that begins here is kept when the low 64 bits of its id
    lie below ratio * 2^64, OpenTelemetry's TraceIdRatioBased: a collector that samples by the same rule keeps a subset.
    """

    def __init__(self, origin: str, ratio: float) -> None:
        self._key = blake2b(origin.encode(), digest_size=32).digest()
        self._below = round(ratio * 2**64)

    def kept(self, index: int, parent: TraceContext | None = None) -> int | None:
        """The id of a request's trace, or None when it is not kept."""
        if parent is not None:
            return parent.trace_id if parent.sampled else None
        trace_id = self._hash(index, 16)
        return trace_id if trace_id % 2**64 < self._below else None

    def span_id(self, index: int, number: int) -> int:
        """The id of a span of a request: number 0 is the request, the others its visits."""
        return self._hash(index, 8, number + 1)

    def _hash(self, index: int, size: int, more: int = 0) -> int:
        data = b"%d %d" % (index, more)
        return int.from_bytes(blake2b(data, digest_size=size, key=self._key).digest()) or 1
