"""What hand-over does to rates, in closed form: ports, and pools whose capacities differ."""

from itertools import pairwise

import pytest

from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.engine.served import serve
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.testing import Run, request, run_fleet, run_plan, uniform_plan

GIGABYTE = 10**9  # a second: one byte in one ns
ANY = 10**12  # bytes a second: as good as no limit


def run(prefill: Plan, decode: Plan, requests: int, *, bytes_per_s: int, sizes: tuple[int, int]) -> Run:
    """So many requests at once, of prompt and output tokens; one sequence in a prefill, four in a decode step."""
    pools = (
        Pool(name="p", plan=prefill, role="prefill", scheduling=Scheduling(microbatch=1, credits=1)),
        Pool(name="d", plan=decode, role="decode", scheduling=Scheduling(microbatch=4, credits=1)),
    )
    fleet = Fleet(pools=pools, hand_over=HandOver(bytes_per_s=bytes_per_s))
    prompt, output = sizes
    waiting = [request(i, prompt_tokens=prompt, output_tokens=output) for i in range(requests)]
    return run_fleet(serve(fleet), waiting, paranoid=False)


def test_without_a_network_one_request_is_two_runs_glued_together() -> None:
    """Its first token is as from the prefill plan alone; every gap as from the decode plan, the first 1 ns longer."""
    prefill, decode = (
        uniform_plan(2, service_ns=70, token_ns=3),
        uniform_plan(3, service_ns=40, token_ns=1, latency_ns=9),
    )
    (tokens,) = run(prefill, decode, 1, bytes_per_s=ANY, sizes=(50, 8)).tokens_ns.values()
    alone = [run_plan(plan, [request(prompt_tokens=50, output_tokens=8)]).tokens_ns[0] for plan in (prefill, decode)]
    gaps = [b - a for a, b in pairwise(alone[1])]
    assert tokens[0] == alone[0][0]
    assert [b - a for a, b in pairwise(tokens)] == [gaps[0] + 1, *gaps[1:]]


def test_a_port_that_is_never_idle_sends_at_its_bandwidth() -> None:
    """Four sources share one destination; each block weighs 1,000 bytes, and 40 of them take 40 us of its ingress."""
    prefill = uniform_plan(1, service_ns=10, kv_block_bytes=1000, replicas=4)
    seen = run(prefill, uniform_plan(1, service_ns=10, kv_block_bytes=1000), 40, bytes_per_s=GIGABYTE, sizes=(16, 2))
    times = sorted((h.start_ns, h.end_ns) for r in seen.requests if (h := r.hand_over) and h.start_ns and h.end_ns)
    assert times[-1][1] - times[0][0] == 40 * 1000
    assert all(before[1] == after[0] for before, after in pairwise(times))


@pytest.mark.parametrize(
    ("output", "ns_per_request"),
    [
        (2, 100),  # a decode step of 100 ns for four requests: the prefill pool sets the pace
        (5, 100),  # four steps: both are as fast
        (21, 500),  # twenty steps for four requests: the decode pool does
    ],
)
def test_the_slower_pool_sets_the_pace(output: int, ns_per_request: int) -> None:
    plan = uniform_plan(1, service_ns=100)
    requests = 1000
    seen = run(plan, plan, requests, bytes_per_s=ANY, sizes=(16, output))
    assert seen.totals.window_end_ns / requests == pytest.approx(ns_per_request, rel=0.01)
