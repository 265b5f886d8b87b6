"""One finished call: a row of requests.csv, and its latencies on both clocks."""

from fractions import Fraction

import msgspec

from stageline.load.reply import CallOutcome
from stageline.report.request_times import RequestTimes
from stageline.units import rounded_ratio


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Times are wall time in ns from the start of the run; None: it did not happen.

    `intended_ns` is when the call was due, even if the client could not send it then; every latency counts from there.
    The `server_` members are the server's own figures, in emulated time from the arrival at the server.
    """

    index: int  # of the request in the workload
    turn: int
    step: int
    warmup: bool
    intended_ns: int
    sent_ns: int | None
    first_ns: int | None
    last_ns: int | None
    end_ns: int
    asked_prompt_tokens: int
    prompt_tokens: int | None  # as the server counts
    asked_output_tokens: int
    output_tokens: int
    chunks: int
    outcome: CallOutcome
    reason: str
    retries: int = 0
    retry_wait_ns: int = 0  # from the first sending to the last
    server_queue_ns: int | None = None
    server_ttft_ns: int | None = None
    server_e2e_ns: int | None = None
    server_arrival_ns: int | None = None  # since the server's clock began

    @property
    def lag_ns(self) -> int:
        """How long after its due time the call was sent: the client's own delay plus the wait for a connection."""
        return 0 if self.sent_ns is None else self.sent_ns - self.intended_ns

    def wall_times(self) -> RequestTimes | None:
        """What the client measured; None unless the call finished with some output. Queue time is the client's lag."""
        if self.outcome != "finished" or self.first_ns is None or self.last_ns is None:
            return None
        ttft_ns, e2e_ns = self.first_ns - self.intended_ns, self.last_ns - self.intended_ns
        return RequestTimes(self.lag_ns, ttft_ns, _tpot_ns(ttft_ns, e2e_ns, self.output_tokens), e2e_ns)

    def emulated_times(self, dilation: Fraction) -> RequestTimes | None:
        """In emulated time: the server's own figures plus the client's lag and its waits between retries, or wall time
        over dilation without them.

        With the server's figures, neither a slow host nor the network counts as emulated latency.
        """
        wall = self.wall_times()
        if wall is None:
            return None
        lag_ns = _over(self.lag_ns + self.retry_wait_ns, dilation)
        if self.server_queue_ns is None or self.server_ttft_ns is None or self.server_e2e_ns is None:
            ttft_ns, e2e_ns = _over(wall.ttft_ns, dilation), _over(wall.e2e_ns, dilation)
            return RequestTimes(lag_ns, ttft_ns, _tpot_ns(ttft_ns, e2e_ns, self.output_tokens), e2e_ns)
        tpot_ns = _tpot_ns(self.server_ttft_ns, self.server_e2e_ns, self.output_tokens)
        queue_ns, ttft_ns, e2e_ns = self.server_queue_ns, self.server_ttft_ns, self.server_e2e_ns
        return RequestTimes(queue_ns + lag_ns, ttft_ns + lag_ns, tpot_ns, e2e_ns + lag_ns)


def _over(span_ns: int, dilation: Fraction) -> int:
    return rounded_ratio(span_ns * dilation.denominator, dilation.numerator)


def _tpot_ns(first_ns: int, last_ns: int, tokens: int) -> int | None:
    return rounded_ratio(max(0, last_ns - first_ns), tokens - 1) if tokens > 1 else None
