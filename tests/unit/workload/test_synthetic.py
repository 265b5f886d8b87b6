"""Synthetic arrivals: exact where they can be, right on average where they are random, the same everywhere."""

import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from stageline.engine.types import Request
from stageline.errors import BadInput, UsageError
from stageline.workload import open_workload
from tests.draining import drain, take

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def gaps_s(requests: list[Request]) -> list[float]:
    times = [0] + [r.arrival_ns for r in requests]
    return [(b - a) / 1e9 for a, b in pairwise(times)]


def test_constant_rate_has_no_drift() -> None:
    times = [r.arrival_ns for r in drain(open_workload("constant:rate=3,requests=7"))]
    assert times == [round(Fraction(i * 10**9, 3)) for i in range(7)]


def test_defaults() -> None:
    requests = drain(open_workload("poisson:rate=4"))
    assert len(requests) == 1000
    assert {(r.prompt_tokens, r.output_tokens, r.max_output_tokens) for r in requests} == {(1024, 128, 128)}


def test_the_stream_never_changes() -> None:
    """Pinned values: another machine, Python or refactoring must give these."""
    requests = drain(
        open_workload("poisson:rate=4,input=lognormal(1000,cv=0.8),output=uniform(1,99)", seed=7, requests=4)
    )
    assert [(r.arrival_ns, r.prompt_tokens, r.output_tokens) for r in requests] == PINNED_POISSON
    gamma = drain(open_workload("gamma:rate=4,cv=2,input=lognormal(1000,0.5)", seed=7, requests=4))
    assert [(r.arrival_ns, r.prompt_tokens) for r in gamma] == PINNED_GAMMA


PINNED_POISSON = [(22956384, 1148, 96), (133832423, 170, 1), (188043312, 1004, 80), (754219100, 556, 77)]
PINNED_GAMMA = [(1693860898, 1160), (1694037732, 298), (1815426767, 1055), (1833067303, 694)]


@pytest.mark.parametrize(
    ("spec", "cv"), [("poisson:rate=8", 1.0), ("gamma:rate=8,cv=2.5", 2.5), ("gamma:rate=8,cv=0.4", 0.4)]
)
def test_moments_of_arrivals(spec: str, cv: float) -> None:
    gaps = gaps_s(drain(open_workload(spec, requests=20_000)))
    assert fmean(gaps) == pytest.approx(1 / 8, rel=0.05)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.05)


def test_poisson_gaps_are_exponential() -> None:
    gaps = sorted(gaps_s(drain(open_workload("poisson:rate=1", requests=5_000))))
    distance = max(abs((i + 0.5) / len(gaps) - (1 - math.exp(-g))) for i, g in enumerate(gaps))
    assert distance < 1.63 / math.sqrt(len(gaps))  # Kolmogorov-Smirnov, 1 %


def test_moments_of_lengths() -> None:
    requests = drain(
        open_workload("constant:rate=1,input=lognormal(1000,cv=0.8),output=uniform(10,30)", requests=20_000)
    )
    prompts, outputs = [r.prompt_tokens for r in requests], [r.output_tokens for r in requests]
    assert fmean(prompts) == pytest.approx(1000, rel=0.03)
    assert pstdev(prompts) / fmean(prompts) == pytest.approx(0.8, rel=0.05)
    assert set(outputs) == set(range(10, 31))
    assert fmean(outputs) == pytest.approx(20, rel=0.02)


def test_seeds_differ_and_repeat() -> None:
    def times(seed: int) -> list[int]:
        return [r.arrival_ns for r in drain(open_workload("poisson:rate=1,requests=50", seed=seed))]

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    long = drain(open_workload("gamma:rate=1,cv=2,input=uniform(1,9)", requests=50))
    assert drain(open_workload("gamma:rate=1,cv=2,input=uniform(1,9)", requests=20)) == long[:20]


def test_rate_scale_is_exact() -> None:
    times = [r.arrival_ns for r in drain(open_workload("constant:rate=1,requests=5", rate_scale="1.5"))]
    assert times == [0, 666_666_667, 1_333_333_333, 2_000_000_000, 2_666_666_667]


def test_requests_is_the_smaller_of_flag_and_option() -> None:
    assert len(drain(open_workload("constant:rate=1,requests=5", requests=3))) == 3
    assert len(drain(open_workload("constant:rate=1,requests=5", requests=9))) == 5
    assert len(drain(open_workload("constant:rate=1", requests=2000))) == 2000


def test_lengths_of_a_trace_stay_together(tmp_path: Path) -> None:
    path = tmp_path / "t(1).csv"
    path.write_text(AZURE + "".join(f"2023-11-16 18:17:03,{i},{i * 10}\n" for i in range(1, 10)))
    spec = f"constant:rate=1,input=trace({path}),output=trace({path})"
    requests = drain(open_workload(spec, requests=200))
    assert all(r.output_tokens == 10 * r.prompt_tokens for r in requests)
    assert {r.prompt_tokens for r in requests} == set(range(1, 10))


def test_a_trace_without_times_gets_them_from_a_process(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(AZURE + "2023-11-16 18:17:09,1,2\n2023-11-16 18:17:03,3,4\n")
    requests = drain(open_workload(f"constant:rate=2,trace={path}"))
    assert [(r.arrival_ns, r.prompt_tokens) for r in requests] == [(0, 1), (500_000_000, 3)]


def test_closed_loop_waits_and_thinks() -> None:
    workload = open_workload("closed:users=2,think=1s,requests=4,input=uniform(1,9),output=5")
    first, second = take(workload), take(workload)
    assert (first.arrival_ns, second.arrival_ns) == (0, 0)
    assert workload.next_arrival_ns() is None
    workload.finished(1, 50)
    workload.finished(0, 50)
    assert workload.next_arrival_ns() == 1_000_000_050
    third, fourth = take(workload), take(workload)
    assert [r.conversation for r in (first, second, third, fourth)] == ["user-0", "user-1", "user-0", "user-1"]
    assert [r.index for r in (third, fourth)] == [2, 3]
    workload.finished(2, 99)
    workload.finished(3, 99)
    assert workload.next_arrival_ns() is None  # the limit is reached


def test_users_of_a_closed_loop_over_a_trace_take_the_next_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(AZURE + "".join(f"2023-11-16 18:17:0{i},{i + 1},2\n" for i in range(4)))
    workload = open_workload(f"closed:users=2,think=1s,trace={path},requests=3")
    first, second = take(workload), take(workload)
    assert [(r.arrival_ns, r.prompt_tokens) for r in (first, second)] == [(0, 1), (0, 2)]
    assert workload.next_arrival_ns() is None
    workload.finished(1, 50)
    third = take(workload)
    assert (third.index, third.arrival_ns, third.prompt_tokens) == (2, 1_000_000_050, 3)
    workload.finished(0, 60)
    assert workload.next_arrival_ns() is None  # the limit is reached
    assert (workload.fraction(), workload.counts.accepted) == (1.0, 3)


def test_closed_loop_lengths_depend_on_user_and_turn_only() -> None:
    def lengths(order: tuple[int, int]) -> dict[str, list[int]]:
        workload = open_workload("closed:users=2,requests=4,input=uniform(1,1000000)")
        taken = [take(workload), take(workload)]
        for at, index in enumerate(order):
            workload.finished(index, 10 + at)
        taken += [take(workload), take(workload)]
        return {user: [r.prompt_tokens for r in taken if r.conversation == user] for user in ("user-0", "user-1")}

    assert lengths((0, 1)) == lengths((1, 0))


def test_closed_loop_has_no_rate() -> None:
    with pytest.raises(UsageError, match="--rate-scale"):
        open_workload("closed:users=2", rate_scale="2")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("poisson:", "poisson needs rate="),
        ("poisson:rate", "not a name=value pair"),
        ("poisson:rate=4,rate=5", "given twice"),
        ("poisson:rat=4", "unknown option.*poisson knows rate"),
        ("poisson:rate=0", "rate: not a positive number"),
        ("poisson:rate=1/0", "rate: not a positive number"),
        ("poisson:rate=-1", "rate: not a positive number"),
        ("poisson:rate=nan", "rate: not a positive number"),
        ("poisson:rate=0.000000000001", "arrives more than 73 years"),
        ("gamma:rate=1", "gamma needs cv="),
        ("gamma:rate=1,cv=21", "cv: not between"),
        ("poisson:rate=1,input=0", "input: not a positive whole number"),
        ("poisson:rate=1,input=" + "9" * 19, "input: too large"),
        ("poisson:rate=1,input=uniform(5,1)", "first bound is above"),
        ("poisson:rate=1,input=uniform(5)", "not a length distribution"),
        ("poisson:rate=1,input=uniform(1,2", "unbalanced parentheses"),
        ("poisson:rate=1,input=lognormal(5,x=2)", "neither sigma nor cv"),
        ("poisson:rate=1,input=lognormal(5,11)", "sigma above 10"),
        ("poisson:rate=1,input=trace(/no/such)", "can't be read"),
        ("poisson:rate=1,input=3,trace=x", "trace= brings its own lengths"),
        ("closed:think=1s", "closed needs users="),
        ("closed:users=2,think=1", "think: not a number with a unit"),
        ("pareto:rate=1", "no such file"),
        ("x" * 5000, "no such file"),
    ],
)
def test_bad_specs_name_the_option(spec: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        open_workload(spec)


@pytest.mark.parametrize(
    "spec", ["poisson:rate=4", "gamma:rate=4,cv=2", "constant:rate=4", "closed:users=40", "sessions:rate=4,turns=2"]
)
def test_max_output_is_what_a_request_may_produce(spec: str) -> None:
    """It changes no other draw, and an output ends there."""
    lengths = "output=uniform(1,600)"
    plain = drain(open_workload(f"{spec},{lengths}", requests=40))
    limited = drain(open_workload(f"{spec},{lengths},max_output=512", requests=40))
    assert {r.max_output_tokens for r in limited} == {512}
    assert [r.output_tokens for r in limited] == [min(512, r.output_tokens) for r in plain]
    assert max(r.output_tokens for r in plain) > 512
    varied = drain(open_workload(f"{spec},output=9,max_output=uniform(10,99)", requests=40))
    assert len({r.max_output_tokens for r in varied}) > 10


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("constant:rate=1,requests=5", ["", "", "", "", ""]),
        ("poisson:rate=1,requests=5,model=a", ["a"] * 5),
        ("constant:rate=1,requests=5,model=a+b+b", ["a", "b", "b", "a", "b"]),
        ("sessions:rate=1,requests=5,users=2,model=a+b", ["a", "b", "a", "b", "a"]),
    ],
)
def test_requests_name_models_in_turn(spec: str, wanted: list[str]) -> None:
    assert [request.model for request in drain(open_workload(spec))] == wanted


def test_a_user_of_a_closed_loop_keeps_the_model() -> None:
    workload, models = open_workload("closed:users=3,requests=9,model=a+b"), dict[str, set[str]]()
    for _ in range(3):
        sent = [workload.take() for _ in range(3)]
        for request in sent:
            assert isinstance(request, Request)
            models.setdefault(request.conversation, set()).add(request.model)
        for request in reversed(sent):
            workload.finished(request.index, 5)
    assert models == {"user-0": {"a"}, "user-1": {"b"}, "user-2": {"a"}}


@pytest.mark.parametrize(
    "spec", ["constant:rate=1,model=a+", "constant:rate=1,model=+", "poisson:rate=1,model=a,trace=x"]
)
def test_models_that_make_no_sense(spec: str) -> None:
    with pytest.raises(BadInput, match="model"):
        open_workload(spec)
