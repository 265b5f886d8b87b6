"""Running totals of a run's samples, on both clocks."""

from collections import Counter
from fractions import Fraction

import msgspec

from stageline.load.reply import CALL_OUTCOMES
from stageline.load.sample import Sample
from stageline.report.distributions import ExactValues, Latency, latency, rank_of
from stageline.report.request_times import RequestTimes
from stageline.report.slo import Slo
from stageline.units import NS_PER_S


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds of one clock, from the intended start.

    `queue_s` is the client's lag; in emulated time the server's queue time is added to it.
    """

    ttft_s: Latency
    tpot_s: Latency
    itl_s: Latency
    e2e_s: Latency
    queue_s: Latency


class ClockTally:
    """Latencies on one clock, and how many calls met the SLO."""

    def __init__(self, slo: Slo | None) -> None:
        self._slo = slo
        self.good = 0
        self._ttft, self._tpot, self._e2e, self._queue = ExactValues(), ExactValues(), ExactValues(), ExactValues()

    def add(self, times: RequestTimes) -> None:
        """Adds one finished call."""
        self._queue.add(max(0, times.queue_ns))
        self._ttft.add(times.ttft_ns)
        self._e2e.add(times.e2e_ns)
        if times.tpot_ns is not None:
            self._tpot.add(times.tpot_ns)
        self.good += self._slo is not None and self._slo.good(times)

    def median_ttft_ns(self) -> int | None:
        """None when no call finished."""
        count = self._ttft.count
        return self._ttft.at_ranks([rank_of(50, count)])[0] if count else None

    def latencies(self, itl: Latency) -> Latencies:
        """All latencies. `itl` comes from the caller: it has one value per chunk, not per call."""
        return Latencies(
            ttft_s=latency(self._ttft),
            tpot_s=latency(self._tpot),
            itl_s=itl,
            e2e_s=latency(self._e2e),
            queue_s=latency(self._queue),
        )


class ServerWindow:
    """From the first arrival to the last token on the server's own clock, which stands still while its host slips."""

    def __init__(self) -> None:
        self._window_ns: tuple[int, int] | None = None
        self._latest = (0, 0)  # when the last call was sent, and its arrival
        self._known = True  # every call has stamps, of one and the same clock

    def add(self, sample: Sample) -> None:
        """Adds a finished call."""
        arrival_ns, e2e_ns, sent_ns = sample.server_arrival_ns, sample.server_e2e_ns, sample.sent_ns
        if arrival_ns is None or e2e_ns is None or sent_ns is None:
            self._known = False
            return
        latest_ns, latest_arrival_ns = self._latest
        if sent_ns > latest_ns + NS_PER_S and arrival_ns < latest_arrival_ns:
            self._known = False  # another session, another clock
        self._latest = max(self._latest, (sent_ns, arrival_ns))
        first_ns, last_ns = self._window_ns or (arrival_ns, 0)
        self._window_ns = min(first_ns, arrival_ns), max(last_ns, arrival_ns + e2e_ns)

    @property
    def span_ns(self) -> int | None:
        """None when the server does not say."""
        return self._window_ns[1] - self._window_ns[0] if self._known and self._window_ns else None


class Tally:
    """Totals of some calls. `dilation` None: there is no emulated clock, and the SLO is judged in wall time."""

    def __init__(self, slo: Slo | None, dilation: Fraction | None, *, slo_on_wall: bool) -> None:
        self.dilation = dilation
        on_wall = slo_on_wall or dilation is None
        self.wall = ClockTally(slo if on_wall else None)
        self.emulated = None if dilation is None else ClockTally(None if on_wall else slo)
        self._judge = self.wall if on_wall or self.emulated is None else self.emulated
        self.outcomes = dict.fromkeys(CALL_OUTCOMES, 0)
        self.reasons = Counter[str]()
        self.lag = ExactValues()
        self.prompt_tokens = self.output_tokens = self.chunks = 0
        self.retried_calls = self.retries = 0
        self.other_prompts = self.other_outputs = 0
        self.window_ns: tuple[int, int] | None = None
        self.server = ServerWindow()

    @property
    def calls(self) -> int:
        """How many calls were added."""
        return sum(self.outcomes.values())

    @property
    def good(self) -> int:
        """Calls that finished and met the objective."""
        return self._judge.good

    @property
    def span_ns(self) -> int:
        """Wall time from the first intended start to the last end."""
        return 0 if self.window_ns is None else self.window_ns[1] - self.window_ns[0]

    def add(self, sample: Sample) -> None:
        """Adds one call."""
        self.outcomes[sample.outcome] += 1
        if sample.reason:
            self.reasons[sample.reason] += 1
        first_ns, last_ns = self.window_ns or (sample.intended_ns, sample.end_ns)
        self.window_ns = min(first_ns, sample.intended_ns), max(last_ns, sample.end_ns)
        if sample.sent_ns is not None:
            self.lag.add(max(0, sample.lag_ns))
        self.prompt_tokens += sample.prompt_tokens if sample.prompt_tokens is not None else sample.asked_prompt_tokens
        self.output_tokens += sample.output_tokens
        self.chunks += sample.chunks
        self.retried_calls += sample.retries > 0
        self.retries += sample.retries
        if (times := sample.wall_times()) is None:
            return
        self.other_prompts += sample.prompt_tokens not in (None, sample.asked_prompt_tokens)
        self.other_outputs += sample.output_tokens != sample.asked_output_tokens
        self.wall.add(times)
        self.server.add(sample)
        if self.emulated is not None and self.dilation is not None:
            emulated = sample.emulated_times(self.dilation)
            assert emulated is not None
            self.emulated.add(emulated)
