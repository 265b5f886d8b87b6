"""Microbatches of serving engines: small cases worked out by hand (rule 5)."""

import msgspec
import pytest

from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.batching_policy import Load, Quota
from stageline.engine.route import Route
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from stageline.testing import run_plan
from stageline.testing.workloads import ListWorkload
from tests.unit.engine.builders import plan


def members(batching: str, requests: list[tuple[int, int, int]], **changes: int | str) -> list[list[int]]:
    """Who is in each microbatch of three stages of 100 ns, 3 slots; requests are (arrival, prompt, output)."""
    settings = {"batching": batching, "microbatch": 8, "credits": 3, "max_running": 8, "batched_tokens": 100, **changes}
    scheduling = msgspec.convert(settings, Scheduling)
    rows = [
        Request(index=i, arrival_ns=at, prompt_tokens=p, output_tokens=o, max_output_tokens=o)
        for i, (at, p, o) in enumerate(requests)
    ]
    return run(plan((0, 1, 2)), scheduling, rows)


def run(of: Plan, scheduling: Scheduling, requests: list[Request]) -> list[list[int]]:
    seen = run_plan(of, ListWorkload(list(requests)), scheduling, seed=0, paranoid=True).seen
    return [sorted(seen.microbatches[0, number]) for number in range(len(seen.microbatches))]


BURST = [(0, 1, 3)] * 4


@pytest.mark.parametrize("batching", ["natural", "natural-async"])
def test_a_burst_is_one_group_for_ever(batching: str) -> None:
    assert members(batching, BURST) == [[0, 1, 2, 3]] * 3


def test_a_group_forms_in_the_step_that_admits_it_and_arrivals_wait_for_a_return() -> None:
    """Request 1 comes while request 0's prompt is on its way: two stages idle, and yet it waits for the return."""
    assert members("natural", [(0, 1, 3), (5, 1, 2)]) == [[0], [0, 1], [0, 1]]


def test_a_place_that_becomes_free_with_a_step_is_taken_one_step_later() -> None:
    """Step 4 is chosen before step 1 is back with the end of request 0: request 2 joins step 5 and another group."""
    requests = [(0, 1, 1), (0, 1, 3), (0, 1, 2)]
    assert members("natural", requests, max_running=2) == [[0, 1], [1, 2], [1, 2]]
    assert members("natural-async", requests, max_running=2) == [[0, 1], [1], [2], [1], [2]]


def test_who_comes_after_a_step_was_chosen_waits_for_the_next() -> None:
    """Request 1 comes at 5, when steps 2 and 3 have passed empty and step 4 is chosen; step 5 leaves right after it."""
    assert members("natural-async", [(0, 1, 3), (5, 1, 2)]) == [[0], [0], [1], [0], [1]]


def test_the_decode_cap_spreads_a_burst_and_leaves_prefill_alone() -> None:
    """ceil(6 / 3) = 2 decodes a step: all four prompts go at once, then two and two."""
    assert members("decode-cap", BURST, max_running=6) == [[0, 1, 2, 3], [0, 1], [2, 3], [0, 1], [2, 3]]


def test_the_global_cap_counts_prefill_too() -> None:
    """ceil(4 / 3) = 2 of all members."""
    assert members("global-cap", BURST)[:4] == [[0, 1], [2, 3], [0, 1], [2, 3]]


def test_token_balanced_batches_split_a_prompt_over_the_slots() -> None:
    """30 tokens in 3 slots: 10, then 20 / 3 = 7, then 13 / 3 = 5."""
    assert members("token-balanced", [(0, 30, 1)])[:3] == [[0]] * 3
    policy = BATCHING.built_in["token-balanced"](Route(plan()), 3, 8, Scheduling(speculate=1))
    assert policy.quota(Load(running=3, waiting=1, partial=1, prefill_tokens=20), 100) == Quota(8, 8, 8)
    assert policy.quota(Load(running=0, waiting=0, partial=0, prefill_tokens=0), 100).tokens == 1
    assert policy.quota(Load(running=0, waiting=9, partial=0, prefill_tokens=900), 100).tokens == 100


def test_the_first_slot_with_room_takes_all_that_waits() -> None:
    """Three fit a slot: 3 and 1, and nobody ever moves."""
    assert members("slots", BURST, microbatch=3) == [[0, 1, 2], [3]] * 3
    assert members("slots", BURST) == [[0, 1, 2, 3]] * 3


def test_virtual_engines_share_requests_out_at_their_arrival() -> None:
    """The third engine has none; engines 0 and 1 take two each, and one at a time where the limit is one."""
    assert members("virtual-engines", [(0, 1, 2)] * 5)[:3] == [[0, 3], [1, 4], [2]]
    assert members("virtual-engines", [(0, 1, 1)] * 5, max_running=1)[:5] == [[0], [1], [2], [3], [4]]
