"""The reference engine against what is known about pipelines without running one."""

from itertools import pairwise

import msgspec
import pytest

from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan, Serving
from stageline.testing import ListWorkload, UsersWorkload, request
from tests.reference.engine import Engine
from tests.reference.plans import pipeline
from tests.reference.results import Results, run_reference

GREEDY = Scheduling(batching="greedy", microbatch=1)
US = 1_000


def burst(count: int, output_tokens: int) -> list[Request]:
    """Requests of one prompt token that all come at once."""
    return [request(i, prompt_tokens=1, output_tokens=output_tokens) for i in range(count)]


def decode(plan: Plan, in_flight: int, output_tokens: int) -> Results:
    """`in_flight` sequences that decode together, one per microbatch."""
    scheduling = msgspec.structs.replace(GREEDY, credits=in_flight)
    return run_reference(plan, scheduling, ListWorkload(burst(in_flight, output_tokens)), seed=0)


def tokens_per_ns(results: Results) -> float:
    """Steady throughput: from a quarter of the way to the first request's end on."""
    until_ns = min(times[-1] for times in results.tokens_ns.values())
    times_ns = sorted(t for times in results.tokens_ns.values() for t in times if until_ns // 4 <= t <= until_ns)
    return (len(times_ns) - 1) / (times_ns[-1] - times_ns[0])


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (4, 1), (4, 12), (8, 3), (7, 32)])
def test_fill_drain_bubble(stages: int, microbatches: int) -> None:
    """Each stage idles (p-1)/(m+p-1) of the window, all of it fill and drain."""
    time_ns = 1_000
    plan = pipeline([time_ns] * stages)
    results = run_reference(
        plan, msgspec.structs.replace(GREEDY, credits=microbatches), ListWorkload(burst(microbatches, 1)), seed=0
    )
    for s, record in enumerate(results.stages):
        assert record.window_ns == (microbatches + stages - 1) * time_ns
        assert record.busy_ns == microbatches * time_ns
        assert record.idle_ns["fill"] == s * time_ns
        assert record.idle_ns["drain"] == (stages - 1 - s) * time_ns


@pytest.mark.parametrize(("stages", "chunks", "rounds"), [(4, 2, 1), (4, 2, 3), (4, 4, 2), (6, 3, 2)])
def test_interleaved_bubble(stages: int, chunks: int, rounds: int) -> None:
    """v visits of t/v each: the bubble is (p-1)/(v*m) of the ideal time m*t."""
    visit_ns, microbatches = 1_000, rounds * stages
    plan = pipeline([visit_ns] * (stages * chunks), stage_of=list(range(stages)) * chunks)
    results = run_reference(
        plan, msgspec.structs.replace(GREEDY, credits=stages), ListWorkload(burst(microbatches, 1)), seed=0
    )
    ideal_ns = microbatches * chunks * visit_ns
    for record in results.stages:
        assert record.busy_ns == ideal_ns
        assert record.window_ns - ideal_ns == (stages - 1) * visit_ns


@pytest.mark.parametrize("in_flight", [1, 2, 4, 5, 6, 7, 12])
def test_decode_regimes(in_flight: int) -> None:
    """A token every L below the knee, every n*T above it: throughput min(n/L, 1/T); the knee is ceil(L/T)."""
    times_ns, latency_ns = [300, 700, 200, 450, 100, 640], 150
    trip_ns, slowest_ns = sum(times_ns) + 7 * latency_ns, max(times_ns)
    assert -(-trip_ns // slowest_ns) == 5
    results = decode(pipeline(times_ns, latency_ns=latency_ns), in_flight, 60)
    period_ns = max(trip_ns, in_flight * slowest_ns)
    for times in results.tokens_ns.values():
        assert [b - a for a, b in pairwise(times[20:])] == [period_ns] * 39
    for record, time_ns in zip(results.stages, times_ns, strict=True):
        used = record.busy_ns / record.window_ns
        assert used == pytest.approx(time_ns * min(in_flight / trip_ns, 1 / slowest_ns), rel=0.02)


@pytest.mark.parametrize(("users", "think_ns"), [(1, 0), (3, 0), (9, 0), (9, 4_000)])
def test_littles_law(users: int, think_ns: int) -> None:
    """Users = throughput * (response + think), with queueing, sizing and revisits in between."""
    plan = pipeline([300, 500, 200, 350], stage_of=[0, 1, 0, 2], latency_ns=40, microbatch=2, credits_=3)
    workload = UsersWorkload([burst(1, 1) * 200 for _ in range(users)], [0] * users, think_ns)
    results = run_reference(plan, Scheduling(), workload, seed=0)
    ends_ns = [results.tokens_ns[record.index][-1] for record in results.requests]
    all_busy_until_ns = min(
        max(end_ns for end_ns, u in zip(ends_ns, workload.user_of, strict=True) if u == user) for user in range(users)
    )
    waits_ns = [
        end_ns - record.arrival_ns + think_ns
        for end_ns, record in zip(ends_ns, results.requests, strict=True)
        if end_ns <= all_busy_until_ns
    ]
    throughput = len(waits_ns) / all_busy_until_ns
    assert throughput * sum(waits_ns) / len(waits_ns) == pytest.approx(users, rel=0.02)


def test_64_stages_of_44_us() -> None:
    """2,816 us per token and slot; 64 slots give 22.7 k tokens/s."""
    plan = pipeline([44 * US] * 64)
    one = decode(plan, 1, 4).tokens_ns[0]
    assert [b - a for a, b in pairwise(one)] == [2_816 * US] * 3
    full = decode(plan, 64, 4)
    assert all(b - a == 2_816 * US for t in full.tokens_ns.values() for a, b in pairwise(t))
    assert tokens_per_ns(full) * 1e9 == pytest.approx(22_727, rel=1e-3)


def test_qwen3_32b_on_eight_stages() -> None:
    """Ideal cycle 3.244 ms, real 3.901 ms: balance 83.2 %, 6.65 times one device and not 8."""
    times_ns = [3_153 * US, *[3_150 * US] * 6, 3_901 * US]
    one = 1 / tokens_per_ns(decode(pipeline(times_ns), 1, 10))
    full = 1 / tokens_per_ns(decode(pipeline(times_ns), 8, 10))
    assert one / 8 == pytest.approx(3_244 * US, rel=1e-3)
    assert full == pytest.approx(3_901 * US, rel=1e-9)
    assert one / 8 / full == pytest.approx(0.832, abs=5e-4)
    assert one / full == pytest.approx(6.65, abs=5e-3)


@pytest.mark.parametrize(
    ("budget", "ranks", "chunks"),
    [(16, 1, [10]), (16, 4, [4, 4, 2]), (16, 3, [6, 4]), (4, 20, [1] * 10), (7, 2, [4, 4, 2])],
)
@pytest.mark.parametrize("batching", ["greedy", "token-balanced"])
def test_chunks_of_a_prompt_of_ten_tokens(budget: int, ranks: int, chunks: list[int], batching: str) -> None:
    """A chunk holds ceil(B / R) tokens at most, the first one, too; B is the setting, whatever the load."""
    plan = msgspec.structs.replace(pipeline([100]), serving=Serving(engine="any", ranks=ranks))
    workload = ListWorkload([request(0, prompt_tokens=10, output_tokens=1)])
    engine = Engine(
        plan, Scheduling(batching=batching, microbatch=1, batched_tokens=budget, credits=1), workload, seed=0
    )
    sent: list[int] = []

    def note(engine: Engine) -> None:
        for microbatch in engine.replicas[0].in_flight:
            if microbatch.number == len(sent):
                sent.append(microbatch.tokens)

    engine.run(note)
    assert sent == chunks


def test_a_front_end_delays_what_arrives_and_not_the_window() -> None:
    """A refused request between two others: 500 ns through the front end, 100 ns per token, 30 ns to think."""
    plan = msgspec.structs.replace(pipeline([100]), max_context_tokens=8)
    sizes = [request(prompt_tokens=n, output_tokens=2) for n in (4, 7, 4)]
    workload = UsersWorkload([sizes], [1_000], 30)
    results = run_reference(plan, msgspec.structs.replace(GREEDY, front_end_ns=500), workload, seed=0)
    assert [(r.arrival_ns, r.admitted_ns, r.first_token_ns, r.last_token_ns) for r in results.requests] == [
        (1_000, 1_500, 1_600, 1_700),
        (1_730, None, None, None),  # refused at 2_230
        (2_260, 2_760, 2_860, 2_960),
    ]
    assert (results.window_start_ns, results.window_end_ns) == (1_500, 2_960)
    (stage,) = results.stages
    assert (stage.busy_ns, stage.idle_ns["empty"]) == (400, 1_060)


def wafer_route() -> tuple[list[int], list[int]]:
    """The 59-wafer route: stage and number of layers of each visit.

    Layers KKKM * 23 + M; every M has a wafer of its own, the Ks go in pairs in layer order.
    """
    kinds = "KKKM" * 23 + "M"
    wafer_of: list[int] = []
    wafers, open_wafer = 0, None
    for kind in kinds:
        if kind == "K" and open_wafer is not None:
            wafer_of.append(open_wafer)
            open_wafer = None
        else:
            wafer_of.append(wafers)
            open_wafer = wafers if kind == "K" else open_wafer
            wafers += 1
    stage_of, layers = [wafer_of[0]], [1]
    for before, wafer in pairwise(wafer_of):
        if wafer == before:
            layers[-1] += 1
        else:
            stage_of.append(wafer)
            layers.append(1)
    return stage_of, layers


@pytest.mark.parametrize(("in_flight", "share"), [(47, 0.921), (50, 0.968), (55, 1.000)])
def test_knee_of_the_59_wafer_route(in_flight: int, share: float) -> None:
    """Revisits cost throughput at the knee ceil(L/T) = 47; from 55 on the flow line's bound 1/T is reached.

    The shares are those of ties served later visit first; earlier visit first gives 0.904, 0.962 and 1.000.
    """
    stage_of, layers = wafer_route()
    assert (len(set(stage_of)), len(stage_of), sum(layers)) == (59, 70, 93)
    results = decode(pipeline([n * US for n in layers], stage_of=stage_of), in_flight, 16)
    assert tokens_per_ns(results) * 2 * US == pytest.approx(share, abs=0.004)
