"""The latencies of one finished request."""

import msgspec

from stageline.engine.types import RequestRecord
from stageline.units import rounded_ratio


class RequestTimes(msgspec.Struct, frozen=True, gc=False):
    """Emulated ns. queue: arrival to first admission. tpot: None for requests of one token."""

    queue_ns: int
    ttft_ns: int
    tpot_ns: int | None
    e2e_ns: int


def times_of(record: RequestRecord) -> RequestTimes | None:
    """Times of a finished request: tpot = (last - first) / (output - 1), rounded half-even. None for all others."""
    first, last, admitted = record.first_token_ns, record.last_token_ns, record.admitted_ns
    if record.outcome != "finished" or first is None or last is None or admitted is None:
        return None
    steps = record.output_tokens - 1
    return RequestTimes(
        admitted - record.arrival_ns,
        first - record.arrival_ns,
        rounded_ratio(last - first, steps) if steps > 0 else None,
        last - record.arrival_ns,
    )
