"""The measurement window: what lies in it, what is said about it, and when `auto` calls a system stationary."""

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


def measured(
    records: list[RequestRecord], warmup: str | None = None, window: str | None = None, good: int = 0
) -> MeasuredRates:
    found = Measurement(parse_measure(warmup, window))
    for r in records:
        found.request(r, good=r.index < good)
    rates = found.rates(objective=good > 0)
    assert rates is not None
    return rates


def steady(requests: int = 200, stay_s: float = 4.0) -> list[RequestRecord]:
    """One request a second from 100 s on, each of which stays for four."""
    return [record(i, 100 + i, 100 + i + stay_s) for i in range(requests)]


def test_by_default_the_arrivals_span_is_measured_and_the_drain_is_not() -> None:
    rates = measured(steady(11), good=3)
    assert (rates.window, rates.from_s, rates.to_s) == ("the arrivals' span", 0.0, 10.0)
    assert rates.offered_requests_per_s == 1.0  # ten after the first, in ten seconds
    assert rates.served_requests_per_s == 0.7  # those that arrived from 100 to 106 end by 110
    assert rates.served_output_tokens_per_s == 7.0
    assert rates.goodput_requests_per_s == 0.3


def test_all_is_until_the_last_completion() -> None:
    rates = measured(steady(11), window="all")
    assert (rates.to_s, rates.served_requests_per_s) == (14.0, pytest.approx(11 / 14))


def test_what_arrived_at_once_is_measured_until_the_last_completion() -> None:
    rates = measured([record(i, 5, 6 + i) for i in range(4)])
    assert (rates.to_s, rates.offered_requests_per_s, rates.served_requests_per_s) == (4.0, 0.0, 1.0)
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
    rates = measured(steady(11), warmup, window)
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
