"""Objectives: their text, who is good, when they are met."""

from fractions import Fraction

import pytest

from stageline.engine.types import RequestRecord
from stageline.errors import BadInput
from stageline.report.request_times import times_of
from stageline.report.slo import Slo, parse_slo
from stageline.report.statistics import Statistics


def record(
    index: int = 0, *, first: int = 10, last: int = 40, output: int = 4, outcome: str = "finished"
) -> RequestRecord:
    done = outcome == "finished"
    return RequestRecord(
        index=index, replica=0, arrival_ns=2, admitted_ns=5 if done else None, first_token_ns=first if done else None,
        last_token_ns=last if done else None, prompt_tokens=7, output_tokens=output if done else 0, preemptions=0,
        outcome=outcome,  # type: ignore[arg-type]
    )  # fmt: skip


def test_parse() -> None:
    assert parse_slo("ttft=2s,tpot=50ms,attainment=0.999") == Slo(
        ttft_ns=2 * 10**9, tpot_ns=50 * 10**6, attainment=Fraction(999, 1000)
    )
    assert parse_slo(" e2e = 1ms ") == Slo(e2e_ns=10**6)
    assert parse_slo("ttft=2s").text() == "TTFT ≤ 2.00 s for 99 % of requests"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unknown objective"),
        ("ttft", "unknown objective"),
        ("itl=2s", "unknown objective"),
        ("ttft=2s,ttft=3s", "given twice"),
        ("ttft=2", "--slo ttft: not a number with a unit"),
        ("attainment=0.9", "no bound"),
        ("ttft=2s,attainment=1.1", "above 1"),
        ("ttft=2s,attainment=x", "not a positive number"),
    ],
)
def test_bad_objectives(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        parse_slo(text)


def test_times() -> None:
    times = times_of(record())
    assert times is not None
    assert (times.queue_ns, times.ttft_ns, times.tpot_ns, times.e2e_ns) == (3, 8, 10, 38)
    one = times_of(record(output=1, last=10))
    assert one is not None
    assert one.tpot_ns is None
    assert times_of(record(outcome="refused")) is None


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (Slo(ttft_ns=8), True),
        (Slo(ttft_ns=7), False),
        (Slo(tpot_ns=10), True),
        (Slo(tpot_ns=9), False),
        (Slo(e2e_ns=38), True),
        (Slo(e2e_ns=37), False),
        (Slo(ttft_ns=8, tpot_ns=9), False),
    ],
)
def test_every_bound_counts_and_is_inclusive(slo: Slo, good: bool) -> None:
    times = times_of(record())
    assert times is not None
    assert slo.good(times) is good


def test_refused_requests_are_not_good() -> None:
    statistics = Statistics(Slo(ttft_ns=8, attainment=Fraction(3, 4)))
    for i in range(3):
        statistics.request(record(i))
    statistics.request(record(3, outcome="refused"))
    result = statistics.slo_result(statistics.measured())
    assert result is not None
    assert (result.good, result.attainment, result.met, result.goodput_requests_per_s) == (
        3,
        0.75,
        True,
        pytest.approx(3 / 38e-9),
    )  # within 2..40 ns
    statistics.request(record(4, outcome="failed"))
    missed = statistics.slo_result(statistics.measured())
    assert missed is not None
    assert not missed.met


def test_a_request_of_one_token_meets_any_tpot() -> None:
    times = times_of(record(output=1, last=10))
    assert times is not None
    assert Slo(tpot_ns=1).good(times)
