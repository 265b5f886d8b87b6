"""Rule 5 in whole runs: refusals, routing, clients that leave."""

import msgspec
import pytest

from stageline import testing
from stageline.engine import inprocess
from stageline.engine.conductor import Conductor
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.served import one_pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Request
from stageline.testing import ListWorkload, Recorder
from tests.unit.engine.builders import plan


def request(index: int, arrival_ns: int = 0, prompt: int = 4, output: int = 3, priority: int = 0) -> Request:
    return testing.request(index, arrival_ns, prompt_tokens=prompt, output_tokens=output, priority=priority)


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


def test_nothing_happens_beyond_the_horizon() -> None:
    """A workload that knows only part of its future holds the router back, and no further than that."""
    workload = ListWorkload([request(0)])
    workload.horizon_ns = lambda: 5  # type: ignore[method-assign]
    conductor = Conductor(Router(one_pool(Route(plan()), Scheduling()), 0, Recorder()), workload)
    conductor.advance()
    assert [item.microbatch.dispatch_ns for item in conductor.dispatched[0]] == [0]
    conductor.returned(0, [300])
    conductor.advance()
    assert conductor.returns[0] == type(conductor.returns[0])([300])
    workload.horizon_ns = lambda: 301  # type: ignore[method-assign]
    conductor.advance()
    assert not conductor.returns[0]
    assert not conductor.done
