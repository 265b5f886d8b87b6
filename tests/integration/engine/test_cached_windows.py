"""Hits of prompts whose layers have sliding windows, and what they take in a ledger, worked out by hand (rule 8).

Blocks of 4 tokens take 10 B in layers without a window. A window of two blocks takes 100 B a block.
"""

import msgspec
import pytest

from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import KvWindow, Plan
from stageline.testing import Run, request, run_plan, uniform_plan

CACHED = Scheduling(prefix_cache=True, kv="grow")
FIRST = tuple(range(1, 9))
ALONE = 9 * 10 + 2 * 100  # prompt of 8 blocks and a token


def plan(budget_bytes: int) -> Plan:
    """One stage that serves any prompt in one chunk."""
    old = uniform_plan(
        1, service_ns=1, kv_budget_bytes=budget_bytes, kv_block_bytes=10, block_tokens=4, microbatch=10, credits=1,
        batched_tokens=1000,
    )  # fmt: skip
    windows = (KvWindow(most_blocks=2, block_bytes=100),)
    return msgspec.structs.replace(old, stages=(msgspec.structs.replace(old.stages[0], kv_windows=windows),))


def after_each_other(*prompts: tuple[int, ...]) -> list[Request]:
    """A token more than these blocks each, one after the other."""
    return [
        request(i, 1000 * i, prompt_tokens=4 * len(ids) + 1, output_tokens=1, hash_ids=ids)
        for i, ids in enumerate(prompts)
    ]


def run(budget_bytes: int, *prompts: tuple[int, ...]) -> Run:
    """With all laws checked."""
    return run_plan(plan(budget_bytes), after_each_other(*prompts), CACHED)


def cached_tokens(run: Run) -> list[int | None]:
    """What each prompt found."""
    return [record.cached_tokens for record in run.requests]


def test_with_room_every_block_keeps_its_window_kv() -> None:
    """Nine blocks are cached in the end. The last prompt holds a block and a window of its own beside them."""
    found = run(10**6, FIRST, FIRST, (1, 2, 3, 4, 50))
    assert cached_tokens(found) == [0, 32, 16]
    assert found.totals.stages[0].kv_peak_bytes == 9 * (10 + 100) + (10 + 2 * 100)


def test_a_hit_needs_the_window_before_it_and_no_more() -> None:
    """There is room for window KV of two blocks; the last two of the chunk get it."""
    assert cached_tokens(run(ALONE + 200, FIRST, FIRST)) == [0, 32]
    assert cached_tokens(run(ALONE + 200, FIRST, (*FIRST[:7], 50))) == [0, 0]
    assert cached_tokens(run(ALONE + 100, FIRST, FIRST)) == [0, 0]


def test_a_short_hit_needs_the_window_kv_of_all_its_blocks() -> None:
    assert cached_tokens(run(10**6, (1, 2), (1, 3))) == [0, 4]


@pytest.mark.parametrize(("shared", "hit"), [(8, 8), (5, 5), (4, 0), (3, 0)])
def test_window_kv_in_the_middle_of_a_prompt_goes_first(shared: int, hit: int) -> None:
    """The second prompt takes 3 x 10 + 200 B and caches window KV for 200 B: that of the first three blocks goes."""
    third = FIRST[:shared] + (70,) * (8 - shared)
    found = run(ALONE + 800, FIRST, (50, 51), third)
    assert cached_tokens(found) == [0, 0, 4 * hit]


def test_running_sequences_have_the_room_that_they_have_without_a_cache() -> None:
    """The ledger holds two sequences, and two run beside each other: what is cached goes.

    The second waits for one microbatch, in which the first one's chunk holds all of its window KV.
    """
    both = [request(i, 3000, prompt_tokens=33, output_tokens=8, hash_ids=(60 + i,) * 8) for i in range(2, 4)]
    requests = after_each_other(FIRST, FIRST[::-1]) + both
    budget_bytes = 2 * (10 * 10 + 2 * 100)
    records = run_plan(plan(budget_bytes), requests, CACHED).requests
    assert [(r.admitted_ns, r.last_token_ns, r.preemptions) for r in records[2:]] == [(3000, 3008, 0), (3001, 3009, 0)]
