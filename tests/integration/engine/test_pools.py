"""Pools of unlike replicas behind one router (rule 10)."""

from collections.abc import Sequence

from stageline.engine.route import Route
from stageline.engine.served import ServedFleet, ServedPool
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.testing import request, run_fleet, run_plan, uniform_plan


def fleet(*plans: Plan, balance: str = "round-robin") -> ServedFleet:
    """One pool per plan."""
    settings = Scheduling(balance=balance)
    return ServedFleet([ServedPool(f"pool-{i}", Route(p), settings) for i, p in enumerate(plans)], settings)


def test_a_request_is_served_at_the_speed_of_its_pool() -> None:
    """One prompt token and one output token: a slow stage, or two fast ones with a link of 5 ns around each."""
    slow, fast = uniform_plan(1, service_ns=100), uniform_plan(2, service_ns=10, latency_ns=5)
    both = [request(i, prompt_tokens=1, output_tokens=1) for i in range(2)]
    run = run_fleet(fleet(slow, fast), both)
    assert [(r.replica, r.last_token_ns) for r in run.requests] == [(0, 100), (1, 3 * 5 + 2 * 10)]
    assert [(s.replica, s.stage, s.busy_ns) for s in run.totals.stages] == [(0, 0, 100), (1, 0, 10), (1, 1, 10)]
    assert run.totals.stage_visits == 1 + 2


def test_replicas_are_numbered_through_all_pools() -> None:
    run = run_fleet(fleet(uniform_plan(1, replicas=2), uniform_plan(1, replicas=2)), [request(i) for i in range(5)])
    assert [r.replica for r in run.requests] == [0, 1, 2, 3, 0]


def test_two_pools_of_one_plan_are_one_pool_of_as_many() -> None:
    """Every record and account, with jitter, which is drawn by replica."""
    waiting = [request(i, 30 * i, prompt_tokens=7 * i % 40 + 1, output_tokens=i % 5 + 1) for i in range(30)]
    settings = {"latency_ns": 9, "jitter_ns": 50, "token_ns": 3}
    halves = fleet(*[uniform_plan(3, replicas=2, **settings)] * 2, balance="least-loaded")
    whole = run_plan(uniform_plan(3, replicas=4, **settings), waiting, balance="least-loaded")
    assert run_fleet(halves, waiting).digest == whole.digest


def test_a_request_goes_where_it_could_ever_fit() -> None:
    """The small pool holds 2 blocks of 16 tokens; a prompt of 40 and 9 tokens need 3. Round-robin skips it."""
    small, large = (uniform_plan(1, kv_block_bytes=1, kv_budget_bytes=blocks) for blocks in (2, 3))
    run = run_fleet(fleet(small, large), [request(i, prompt_tokens=40, output_tokens=9) for i in range(2)])
    assert [r.replica for r in run.requests] == [1, 1]


def test_what_fits_no_pool_is_refused() -> None:
    run = run_fleet(fleet(*[uniform_plan(1, max_context_tokens=n) for n in (8, 16)]), sized(16, 17))
    assert [r.outcome for r in run.requests] == ["finished", "refused"]


def test_a_request_goes_to_a_pool_of_its_model() -> None:
    two = fleet(uniform_plan(1, model="a"), uniform_plan(1, model="b"))
    named = [request(i, model=model) for i, model in enumerate(["b", "a", "b", "c", ""])]
    run = run_fleet(two, named)
    assert [r.replica for r in run.requests] == [1, 0, 1, None, None]
    assert run_fleet(fleet(uniform_plan(1, model="a")), [request()]).requests[0].replica == 0


def test_each_pool_has_its_own_settings() -> None:
    """One sequence in a microbatch in one pool, two in the other."""
    plan = uniform_plan(1, replicas=1)
    pools = [ServedPool(str(n), Route(plan), Scheduling(microbatch=n, credits=1)) for n in (1, 2)]
    run = run_fleet(ServedFleet(pools, Scheduling()), [request(i, prompt_tokens=1, output_tokens=1) for i in range(4)])
    assert [r.last_token_ns for r in run.requests] == [100, 100, 200, 100]


def sized(*contexts: int) -> Sequence:
    """Requests of so many tokens, one of them output."""
    return [request(i, prompt_tokens=n - 1, output_tokens=1) for i, n in enumerate(contexts)]
