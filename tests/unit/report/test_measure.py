"""The measurement window: what lies in it, what is said about it, and when `auto` calls a system stationary."""

from itertools import pairwise

import pytest

from stageline.engine.types import RequestRecord
from stageline.errors import BadInput, UsageError
from stageline.report.measure import MeasuredRates, Measurement, parse_measure
from stageline.units import NS_PER_S


def record(index: int, arrival_s: float, end_s: float, *, wait_s: float = 0.0, tokens: int = 10) -> RequestRecord:
    arrival, end = round(arrival_s * NS_PER_S), round(end_s * NS_PER_S)
    return RequestRecord(
        index=index, replica=0, arrival_ns=arrival, admitted_ns=arrival + round(wait_s * NS_PER_S), first_token_ns=end,
        last_token_ns=end, prompt_tokens=1, output_tokens=tokens, preemptions=0, outcome="finished",
    )  # fmt: skip


def measurement(
    records: list[RequestRecord], warmup: str | None = None, window: str | None = None, good: int = 0
) -> Measurement:
    found = Measurement(parse_measure(warmup, window))
    for r in records:
        found.request(r, good=r.index < good)
    return found


def measured(
    records: list[RequestRecord],
    warmup: str | None = None,
    window: str | None = None,
    good: int = 0,
    *,
    closed: bool = False,
) -> MeasuredRates:
    rates = measurement(records, warmup, window, good).rates(objective=good > 0, closed=closed)
    assert rates is not None
    return rates


def steady(requests: int = 200, stay_s: float = 4.0) -> list[RequestRecord]:
    """One request a second from 100 s on, each of which stays for four seconds."""
    return [record(i, 100 + i, 100 + i + stay_s) for i in range(requests)]


def test_by_default_the_arrivals_span_is_measured_and_the_drain_is_not() -> None:
    rates = measured(steady(11, stay_s=2.0), good=3)
    assert (rates.window, rates.from_s, rates.to_s, rates.arrivals_s) == ("the arrivals' span", 0.0, 10.0, 10.0)
    assert rates.offered_requests_per_s == 1.0  # ten after the first, in ten seconds
    assert rates.served_requests_per_s == 0.9  # those that arrived from 100 to 108 end by 110
    assert rates.served_output_tokens_per_s == 9.0
    assert rates.goodput_requests_per_s == 0.3


@pytest.mark.parametrize(
    ("stay_s", "to_s", "window"),
    [
        (2.0, 10.0, "the arrivals' span"),
        (2.2, 11.0, "from 0 ns to 11.0 s after the first arrival, as arrivals are brief"),
        (2.5, 12.5, "from the first arrival to the last completion, as arrivals are brief"),
        (9.0, 19.0, "from the first arrival to the last completion, as arrivals are brief"),
    ],
)
def test_brief_arrivals_are_measured_for_five_median_requests_if_the_run_lasts(
    stay_s: float, to_s: float, window: str
) -> None:
    rates = measured(steady(11, stay_s))
    assert (rates.to_s, rates.window, rates.offered_requests_per_s) == (to_s, window, 1.0)


def test_no_rate_jumps_where_arrivals_become_brief() -> None:
    """Each request takes a little longer than in the run before: a rate moves by one completion at most."""
    served = [measured(steady(101, 19 + step / 50)).served_requests_per_s for step in range(100)]
    assert max(abs(a - b) for a, b in pairwise(served)) < 0.011


def test_nothing_is_offered_to_a_closed_loop() -> None:
    """Two users with three requests each: what arrives is what was served, so it is no load of its own."""
    loop = [record(2 * turn + user, turn, turn + 1) for turn in range(3) for user in range(2)]
    assert measured(loop, closed=True).offered_requests_per_s is None


def test_a_burst_counts_as_offered_but_for_the_request_that_begins_the_window() -> None:
    burst = [record(i, 0, 1) for i in range(100)] + [record(100, 10, 11)]
    assert measured(burst).offered_requests_per_s == 10.0


def test_attainment_is_of_the_requests_that_arrive_in_the_window() -> None:
    runs = [((None, None), (4, 11)), (("2", None), (2, 9)), ((None, "8s..10s"), (0, 3)), (("11", None), (4, 11))]
    for asked, judged in runs:
        assert measurement(steady(11), *asked, good=4).judged() == judged


def test_all_is_until_the_last_completion() -> None:
    rates = measured(steady(11), window="all")
    assert (rates.to_s, rates.served_requests_per_s) == (14.0, pytest.approx(11 / 14))


def test_what_arrived_at_once_is_measured_until_the_last_completion() -> None:
    rates = measured([record(i, 5, 6 + i) for i in range(4)])
    assert (rates.to_s, rates.offered_requests_per_s, rates.served_requests_per_s) == (4.0, None, 1.0)
    assert rates.window == "from the first arrival to the last completion"


@pytest.mark.parametrize(
    ("warmup", "window", "bounds"),
    [
        ("5", None, (5.0, 10.0)),
        ("2s", None, (2.0, 10.0)),
        ("2s", "3s", (2.0, 5.0)),
        ("4", "3s", (4.0, 7.0)),
        (None, "3s", (0.0, 3.0)),
        (None, "3s..13s", (3.0, 13.0)),
    ],
)
def test_bounds_are_counted_from_the_first_arrival(
    warmup: str | None, window: str | None, bounds: tuple[float, float]
) -> None:
    rates = measured([*steady(11, stay_s=2.0), record(11, 110, 114)], warmup, window)
    assert (rates.from_s, rates.to_s, rates.remark) == (*bounds, "")


@pytest.mark.parametrize(
    ("warmup", "window", "remark"),
    [
        ("11", None, "only 11 requests came: all of them are warm-up"),
        ("10s", None, "before the window begins"),
        (None, "3s..60s", "the run ended after 14.0 s, before the window does"),
    ],
)
def test_a_window_that_the_run_does_not_fill_is_remarked(warmup: str | None, window: str | None, remark: str) -> None:
    assert remark in measured(steady(11), warmup, window).remark


def test_auto_begins_where_queue_and_running_hold_still() -> None:
    """A backlog of 100 requests that is gone after 40 of 200 s."""
    backlog = [record(i, 100, 100 + (i + 1) * 0.4, wait_s=i * 0.4) for i in range(100)]
    rates = measured(backlog + [record(100 + i, 100 + i, 104 + i) for i in range(201)], window="auto")
    assert rates.stationary is True
    assert 30.0 <= rates.from_s <= 60.0
    assert rates.served_requests_per_s == pytest.approx(1.0, abs=0.01)


def test_auto_takes_all_of_a_system_that_is_stationary_from_the_start() -> None:
    rates = measured(steady(), window="auto")
    assert (rates.from_s, rates.to_s, rates.window) == (0.0, 199.0, "steady state, found from 0 ns to 199 s")


def test_a_queue_that_grows_is_no_steady_state() -> None:
    growing = [record(i, i, i * 2 + 1, wait_s=float(i)) for i in range(300)]
    rates = measured(growing, window="auto")
    assert (rates.stationary, rates.from_s) == (False, 0.0)
    assert "no steady state" in rates.remark


def test_few_requests_are_no_steady_state() -> None:
    assert measured(steady(39), window="auto").stationary is False


@pytest.mark.parametrize("window", ["9s..3s", "0s", "soon", "5"])
def test_a_window_that_is_none_is_refused(window: str) -> None:
    with pytest.raises(BadInput, match="--measure-window"):
        parse_measure(None, window)


@pytest.mark.parametrize("window", ["auto", "all", "1s..2s"])
def test_a_beginning_is_said_once(window: str) -> None:
    with pytest.raises(UsageError, match="give one of them"):
        parse_measure("3", window)


def test_a_warmup_that_is_none_is_refused() -> None:
    for text in ("many", "-3", "9" * 12):
        with pytest.raises(BadInput, match="--warmup"):
            parse_measure(text, None)
