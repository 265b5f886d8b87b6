"""Rule 5: queueing, sizing, balancing, clients that leave."""

import msgspec
import pytest

from stageline import testing
from stageline.cost.entries import Affine
from stageline.cost.totals import BatchTotals
from stageline.engine import inprocess
from stageline.engine.conductor import Conductor
from stageline.engine.kv import make_kv_policy
from stageline.engine.mirror import KvMirror
from stageline.engine.queueing import QueueingPolicy, WaitingQueue, load_policy
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling
from stageline.engine.sizing import make_sizing
from stageline.engine.types import Cancellation, Request
from stageline.errors import UsageError
from stageline.testing import ListWorkload, Recorder
from tests.unit.engine.builders import plan


class LongestFirst(QueueingPolicy):
    """A user's own policy."""

    def key(self, request: Request) -> int:
        """The longest prompt first."""
        return -request.prompt_tokens


class NotAPolicy:
    """Has no key."""


def request(index: int, arrival_ns: int = 0, prompt: int = 4, output: int = 3, priority: int = 0) -> Request:
    return testing.request(index, arrival_ns, prompt_tokens=prompt, output_tokens=output, priority=priority)


def order(policy: str, *requests: Request) -> list[int]:
    queue = WaitingQueue(load_policy(policy))
    for r in requests:
        queue.push(Sequence(r, 0))
    return [queue.pop().request.index for _ in requests]


def test_queueing_policies_order_and_keep_arrival_order_among_equals() -> None:
    requests = [request(0, prompt=9, priority=1), request(1, prompt=2, priority=1), request(2, prompt=2)]
    assert order("fcfs", *requests) == [0, 1, 2]
    assert order("shortest", *requests) == [1, 2, 0]
    assert order("priority", *requests) == [2, 0, 1]
    assert order(f"{__name__}:LongestFirst", *requests) == [0, 1, 2]


def test_a_preempted_sequence_goes_before_everybody() -> None:
    queue = WaitingQueue(load_policy("shortest"))
    queue.push(Sequence(request(0, prompt=1), 0))
    queue.push_front(Sequence(request(1, prompt=50), 0))
    assert [s.request.index for s in queue] == [1, 0]


@pytest.mark.parametrize("name", ["fastest", "no.such.module:Policy", f"{__name__}:Missing", f"{__name__}:NotAPolicy"])
def test_a_policy_that_can_not_be_had_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        load_policy(name)


def test_sizes() -> None:
    route = Route(plan())
    balanced = make_sizing(Scheduling(), route, 4, 8)
    assert [balanced.limit(running, 1, 0) for running in (0, 3, 4, 100)] == [1, 1, 2, 8]
    assert make_sizing(Scheduling(batching="greedy"), route, 4, 8).limit(1, 0, 0) == 8
    with pytest.raises(UsageError, match="tpot"):
        make_sizing(Scheduling(batching="slo"), route, 4, 8)


def test_slo_is_the_largest_size_that_keeps_the_target() -> None:
    route = Route(plan((0, 1), service_ns=100, latency_ns=10, bytes_per_token=1))
    # A trip is 2 x 100 ns, three hops of 10 ns, and one ns per member on each hop; 2 credits x 100 ns is less.
    for target_ns, expected in [(229, 1), (233, 1), (236, 2), (254, 8), (10**6, 8)]:
        target = Scheduling(batching="slo", tpot_slo_ns=target_ns)
        assert make_sizing(target, route, 2, 8).limit(1, 0, 10) == expected, target_ns
    # 9 credits x 100 ns: even one misses it
    busy = make_sizing(Scheduling(batching="slo", tpot_slo_ns=800), route, 9, 8)
    assert busy.limit(1, 0, 10) == 1


def test_slo_lets_a_step_take_the_target_for_every_token_that_it_yields() -> None:
    """Two drafts, each right every second time: 1.75 tokens a step. Drafting takes 8 ns, a hop 3 ns per member."""
    route = Route(plan((0, 1), service_ns=100, latency_ns=10, bytes_per_token=1))
    drafting = Scheduling(batching="slo", speculate=2, acceptance_ppm=500_000, draft_ns=4)

    def limit(credits_: int, target_ns: int) -> int:
        return make_sizing(msgspec.structs.replace(drafting, tpot_slo_ns=target_ns), route, credits_, 8).limit(1, 0, 10)

    # A step of four takes 8 + 2 x 100 + 3 x (10 + 12) = 274 ns, of five 283: 1.75 x 156 = 273, x 157 = 274.75, ...
    assert [limit(2, target_ns) for target_ns in (156, 157, 161, 162)] == [3, 4, 4, 5]
    # Nine credits take turns at drafting and the first stage, 9 x 108 = 972 ns: 1.75 x 555 = 971.25, x 556 = 973.
    assert [limit(9, target_ns) for target_ns in (555, 556)] == [1, 8]


def test_slo_counts_the_work_of_verification() -> None:
    """Costs by new token, KV token and row: the limit is what a step of that many members really takes."""
    cost = Affine(base_ns=100, token_ns=10, kv_token_ns=1, sampled_ns=5)
    base = plan((0,), latency_ns=0, bytes_per_token=0)
    route = Route(msgspec.structs.replace(base, costs=(cost,)))
    settings = Scheduling(batching="slo", speculate=3, acceptance_ppm=0)
    for members in (1, 2, 5):
        load = BatchTotals(members, 4 * members, members * (256 + 3), sampled=4 * members)
        exact = msgspec.structs.replace(settings, tpot_slo_ns=route.models[0].service_ns(load))
        less = msgspec.structs.replace(exact, tpot_slo_ns=exact.tpot_slo_ns - 1)
        assert make_sizing(exact, route, 1, 8).limit(1, 0, 200) == members
        assert make_sizing(less, route, 1, 8).limit(1, 0, 200) == max(1, members - 1)


def test_a_request_that_fits_no_ledger_is_refused_and_counted() -> None:
    workload, seen = ListWorkload([request(0, prompt=40), request(1)]), Recorder()
    totals = inprocess.run(plan(kv_budget_bytes=4), Scheduling(), workload, seed=0, observer=seen, paranoid=True)
    assert [(r.index, r.outcome, r.replica) for r in seen.requests] == [(0, "refused", None), (1, "finished", 0)]
    assert totals.requests == 2


def test_round_robin_skips_nobody_and_least_loaded_sees_the_load() -> None:
    requests = [request(i, output=20 if i == 0 else 1) for i in range(4)]
    for balance, expected in [("round-robin", [0, 1, 0, 1]), ("least-loaded", [0, 1, 1, 1])]:
        seen = Recorder()
        scheduling = Scheduling(balance=balance)
        inprocess.run(plan(replicas=2), scheduling, ListWorkload([*requests]), seed=0, observer=seen, paranoid=True)
        assert [r.replica for r in sorted(seen.requests, key=lambda r: r.index)] == expected


@pytest.mark.parametrize(("at_ns", "tokens"), [(1, 0), (400, 1), (10**6, 3)])
def test_a_client_that_leaves_frees_its_kv(at_ns: int, tokens: int) -> None:
    events = [request(0), Cancellation(index=0, at_ns=at_ns)]
    workload, seen = ListWorkload([*events]), Recorder()
    inprocess.run(plan(), Scheduling(kv="grow"), workload, seed=0, observer=seen, paranoid=True)
    (record,) = seen.requests
    assert (record.outcome, record.output_tokens) == ("cancelled" if tokens < 3 else "finished", tokens)
    assert workload.ended[0][0] == 0
    if tokens < 3:
        assert workload.ended[0][1] >= at_ns


def test_a_waiting_client_that_leaves_is_never_admitted() -> None:
    requests = [request(0, prompt=8, output=4), request(1, 1, prompt=8, output=4)]
    seen = Recorder()
    workload = ListWorkload([*requests, Cancellation(index=1, at_ns=2)])
    inprocess.run(plan(kv_budget_bytes=3), Scheduling(), workload, seed=0, observer=seen, paranoid=True)
    by_index = {r.index: r for r in seen.requests}
    assert (by_index[1].outcome, by_index[1].admitted_ns) == ("cancelled", None)
    assert by_index[0].outcome == "finished"


def test_what_exceeds_the_models_context_is_refused_and_what_fills_it_is_served() -> None:
    """The largest output counts, not what is produced; a plan without a context refuses nothing."""
    fills, exceeds = request(0, prompt=8, output=4), request(1, prompt=8, output=5)
    may = msgspec.structs.replace(request(2, prompt=8, output=1), max_output_tokens=5)
    for limit, wanted in ((12, ["finished", "refused", "refused"]), (0, ["finished"] * 3)):
        seen, workload = Recorder(), ListWorkload([fills, exceeds, may])
        bound = msgspec.structs.replace(plan(), max_context_tokens=limit)
        inprocess.run(bound, Scheduling(), workload, seed=0, observer=seen, paranoid=True)
        assert [r.outcome for r in sorted(seen.requests, key=lambda r: r.index)] == wanted
        assert sorted(index for index, _ in workload.ended) == [0, 1, 2]


def test_policies_of_unknown_names_are_refused() -> None:
    route = Route(plan())
    with pytest.raises(UsageError, match="'bigger': there is none"):
        make_sizing(Scheduling(batching="bigger"), route, 4, 8)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'share': there is none"):
        make_kv_policy("share", KvMirror(route.plan))


def test_nothing_happens_beyond_the_horizon() -> None:
    """A workload that knows only part of its future holds the router back, and no further than that."""
    workload = ListWorkload([request(0)])
    workload.horizon_ns = lambda: 5  # type: ignore[method-assign]
    conductor = Conductor(Router(Route(plan()), Scheduling(), 0, Recorder()), workload)
    conductor.advance()
    assert [item.microbatch.dispatch_ns for item in conductor.dispatched[0]] == [0]
    conductor.returns[0].append(300)
    conductor.advance()
    assert conductor.returns[0] == type(conductor.returns[0])([300])
    workload.horizon_ns = lambda: 301  # type: ignore[method-assign]
    conductor.advance()
    assert not conductor.returns[0]
    assert not conductor.done
