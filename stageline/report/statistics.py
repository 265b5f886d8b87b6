"""Totals and latencies of a run, accumulated while it is running."""

from typing import get_args

from stageline.engine.types import Outcome, RequestRecord
from stageline.report.distributions import ExactValues, Histogram, Latency, latency
from stageline.report.measure import ARRIVALS, MeasuredRates, Measurement, MeasureWindow
from stageline.report.request_times import times_of
from stageline.report.slo import Slo, SloResult
from stageline.report.utilisation import WorkDone

REQUEST_OUTCOMES: tuple[str, ...] = get_args(Outcome)


class Statistics:
    """Latencies are of finished requests, inter-token latencies of all tokens, counts of all requests."""

    def __init__(self, slo: Slo | None = None, window: MeasureWindow = ARRIVALS) -> None:
        self._slo = slo
        self.outcomes = dict.fromkeys(REQUEST_OUTCOMES, 0)
        self.output_tokens = 0
        self.prompt_tokens = 0
        self.preemptions = 0
        self._ttft, self._tpot, self._e2e, self._queue = ExactValues(), ExactValues(), ExactValues(), ExactValues()
        self._itl = Histogram()
        self.work = WorkDone()
        self._measurement = Measurement(window)

    @property
    def requests(self) -> int:
        """Requests that left the system."""
        return sum(self.outcomes.values())

    def token_gap(self, gap_ns: int) -> None:
        """Adds the time between two tokens of a request."""
        self._itl.add(gap_ns)

    def request(self, record: RequestRecord) -> None:
        """Adds one record."""
        self.outcomes[record.outcome] += 1
        self.output_tokens += record.output_tokens
        self.prompt_tokens += record.prompt_tokens
        self.preemptions += record.preemptions
        self.work.request(record)
        times = times_of(record)
        good = times is not None and self._slo is not None and self._slo.good(times)
        self._measurement.request(record, good=good)
        if times is None:
            return
        self._queue.add(times.queue_ns)
        self._ttft.add(times.ttft_ns)
        self._e2e.add(times.e2e_ns)
        if times.tpot_ns is not None:
            self._tpot.add(times.tpot_ns)

    def latencies(self) -> dict[str, Latency]:
        """By their names in summary.json."""
        return {
            "ttft_s": latency(self._ttft),
            "tpot_s": latency(self._tpot),
            "itl_s": latency(self._itl),
            "e2e_s": latency(self._e2e),
            "queue_s": latency(self._queue),
        }

    def measured(self, *, closed: bool = False) -> MeasuredRates | None:
        """Rates over the measurement window; `closed`: of a closed loop, to which nothing is offered."""
        return self._measurement.rates(objective=self._slo is not None, closed=closed)

    def slo_result(self, measured: MeasuredRates | None) -> SloResult | None:
        """Over the same window; None without an objective."""
        if self._slo is None:
            return None
        good, total = self._measurement.judged()
        return SloResult(
            objective=self._slo.text(),
            good=good,
            requests=total,
            attainment=good / total if total else 1.0,
            required=float(self._slo.attainment),
            goodput_requests_per_s=(measured.goodput_requests_per_s or 0.0) if measured else 0.0,
            met=self._slo.met(good, total),
        )
