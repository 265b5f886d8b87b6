"""The prefix cache on a public trace, and in whole runs."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from stageline.engine import prefix
from stageline.engine.mirror import KvMirror
from stageline.engine.prompt_cache import make_cache
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.errors import UsageError
from stageline.plan.schema import Plan
from stageline.testing import request, run_plan, uniform_plan
from stageline.workload import open_workload
from tests.draining import drain

MOONCAKE = "traces/mooncake_conversation_trace.jsonl"
CACHED = Scheduling(prefix_cache=True, hash_block_tokens=512)


def plan(*, budget_bytes: int = 1 << 60, state_bytes: int = 0, block_tokens: int = 512) -> Plan:
    """One stage that hardly takes any time."""
    return uniform_plan(
        1, service_ns=1, kv_budget_bytes=budget_bytes, kv_block_bytes=block_tokens, state_bytes=state_bytes,
        block_tokens=block_tokens, microbatch=1000, credits=4, batched_tokens=1 << 20,
    )  # fmt: skip


def hits_of_an_unbounded_cache(requests: Iterable[Request]) -> tuple[int, int]:
    """Blocks found and blocks asked for, one request after the other. Equal prefixes have equal ids in this trace."""
    known: set[int] = set()
    found = asked = 0
    for r in requests:
        usable = r.hash_ids[: (r.prompt_tokens - 1) // 512]
        found += next((n for n, key in enumerate(usable) if key not in known), len(usable))
        asked += len(r.hash_ids)
        known.update(r.hash_ids[: r.prompt_tokens // 512])
    return found, asked


def test_an_unbounded_cache_hits_36_6_percent_of_the_conversation_trace(shared_data: Path) -> None:
    """The figure that its publishers give."""
    requests = drain(open_workload(str(shared_data / MOONCAKE)))
    p = plan()
    mirror = KvMirror(p)
    cache = make_cache(mirror, Route(p), CACHED)
    assert cache is not None
    for r in requests:
        sequence = Sequence(r, 0)
        cache.count(sequence, cache.acquire(sequence))
        sequence.written_tokens = r.prompt_tokens
        sequence.blocks = mirror.blocks_for(r.prompt_tokens) - sequence.cached_blocks
        cache.cache_full_blocks(sequence, [])
        cache.release(sequence)
    stats = cache.stats()
    assert stats.queried_blocks == 288_500
    assert (stats.hit_blocks, stats.queried_blocks) == hits_of_an_unbounded_cache(requests)
    assert round(100 * stats.hit_blocks / stats.queried_blocks, 1) == 36.6


def test_a_run_hits_what_an_unbounded_cache_hits(shared_data: Path) -> None:
    """The first minutes of the trace, answers cut to one token."""
    rows = islice(drain(open_workload(str(shared_data / MOONCAKE), requests=600)), 600)
    requests = [msgspec.structs.replace(r, output_tokens=1, max_output_tokens=1) for r in rows]
    run = run_plan(plan(), requests, CACHED, paranoid=False)
    stats = run.totals.prefix[0]
    assert (stats.hit_blocks, stats.queried_blocks) == hits_of_an_unbounded_cache(requests)
    assert stats.hit_tokens == sum(r.cached_tokens or 0 for r in run.requests) > 0
    assert stats.evictions == 0


def ask(index: int, tokens: int, ids: tuple[int, ...], at_ns: int) -> Request:
    """A request of one token."""
    return request(index, at_ns, prompt_tokens=tokens, output_tokens=1, hash_ids=ids)


def cached_tokens(scheduling: Scheduling, p: Plan, requests: list[Request]) -> list[int | None]:
    """What each request found."""
    return [r.cached_tokens for r in run_plan(p, requests, scheduling).requests]


def test_at_least_one_token_is_always_computed() -> None:
    ids = (1, 2)
    requests = [ask(0, 1024, ids, 0), ask(1, 1024, ids, 1000), ask(2, 1025, (*ids, 3), 2000)]
    assert cached_tokens(CACHED, plan(), requests) == [0, 512, 1024]


def test_hits_are_cut_to_the_last_state_snapshot() -> None:
    ids = tuple(range(10))
    requests = [ask(0, 5120, ids, 0), ask(1, 5120, ids, 1000)]
    p = plan(state_bytes=100)
    every = msgspec.structs.replace
    assert cached_tokens(every(CACHED, snapshot_tokens=512), p, requests) == [0, 9 * 512]
    assert cached_tokens(every(CACHED, snapshot_tokens=2048), p, requests) == [0, 8 * 512]
    assert cached_tokens(every(CACHED, snapshot_tokens=8192), p, requests) == [0, 0]


def test_two_that_run_at_once_share_one_copy() -> None:
    """Each would need ten blocks; fifteen are there."""
    ids = tuple(range(9))
    requests = [ask(0, 9 * 512 + 1, ids, 0), ask(1, 9 * 512 + 1, ids, 0)]
    assert cached_tokens(CACHED, plan(budget_bytes=15 * 512), requests) == [0, 9 * 512]


@pytest.mark.parametrize("kv", ["reserve", "grow"])
def test_what_nobody_uses_makes_room_and_no_more_of_it_than_needed(kv: str) -> None:
    """Of twelve blocks the first prompt leaves eight; the second needs nine, or ten when it reserves its answer."""
    first, second = tuple(range(8)), tuple(range(100, 108))
    may_say_two = request(1, 1000, prompt_tokens=9 * 512, output_tokens=1, max_output_tokens=2, hash_ids=second)
    run = run_plan(plan(budget_bytes=12 * 512), [ask(0, 8 * 512 + 1, first, 0), may_say_two], CACHED, kv=kv)
    assert run.totals.prefix[0].evictions == {"grow": 5, "reserve": 6}[kv]
    assert [(r.outcome, r.preemptions) for r in run.requests] == [("finished", 0)] * 2


@pytest.mark.parametrize(
    ("scheduling", "state_bytes", "reason"),
    [
        (Scheduling(prefix_cache=True, hash_block_tokens=16), 0, "16-token blocks .* KV blocks of 512"),
        (msgspec.structs.replace(CACHED, snapshot_tokens=700), 1, "--snapshot-tokens 700: .* multiple of 512"),
        (msgspec.structs.replace(CACHED, snapshot_tokens=256), 1, "--snapshot-tokens 256: .* multiple of 512"),
    ],
)
def test_settings_that_do_not_fit_the_plan(scheduling: Scheduling, state_bytes: int, reason: str) -> None:
    p = plan(state_bytes=state_bytes)
    with pytest.raises(UsageError, match=reason):
        make_cache(KvMirror(p), Route(p), scheduling)


def test_a_chain_that_is_used_for_ever_does_not_fill_the_memory() -> None:
    p = plan()
    mirror = KvMirror(p)
    cache = make_cache(mirror, Route(p), CACHED)
    assert cache is not None
    sequence = Sequence(ask(0, 100 * 512 + 1, tuple(range(100)), 0), 0)
    cache.acquire(sequence)
    sequence.written_tokens = 100 * 512
    cache.cache_full_blocks(sequence, [])
    cache.release(sequence)
    for _ in range(1000):
        assert cache.acquire(sequence) == 100 * 512
        cache.release(sequence)
    assert len(cache._idle) <= prefix.SWEEP_ENTRIES + 100
    while cache.evict_one():
        pass
    assert cache.evicted_blocks == 100


def test_the_next_turn_hits_the_answer_but_for_its_last_token() -> None:
    """1,024 shared + 256 asked + 1,024 answered: floor((1280 + 1024 - 1) / 16) x 16 tokens, as vLLM's full blocks."""
    spec = "sessions:users=1,turns=3,system=1024,question=256,output=1024,rate=1"
    requests = [
        msgspec.structs.replace(r, arrival_ns=i * 10**9) for i, r in enumerate(drain(open_workload(spec, requests=3)))
    ]
    scheduling = msgspec.structs.replace(CACHED, hash_block_tokens=16)
    assert cached_tokens(scheduling, plan(block_tokens=16), requests) == [0, 2288, 3568]


def test_a_preempted_sequence_hits_what_it_generated() -> None:
    """Two sequences grow in a ledger for little more than one; the younger one finds its own blocks again."""
    requests = [
        request(
            i, 0, prompt_tokens=4, output_tokens=20, hash_ids=(i,), output_hash_ids=(10 + i, 20 + i, 30 + i, 40 + i)
        )
        for i in range(2)
    ]
    scheduling = msgspec.structs.replace(CACHED, hash_block_tokens=4, kv="grow", batching="greedy", credits=1)
    with_answers = run_plan(plan(budget_bytes=32, block_tokens=4), requests, scheduling)
    assert max(r.preemptions for r in with_answers.requests) > 0
    without = [msgspec.structs.replace(r, output_hash_ids=()) for r in requests]
    plain = run_plan(plan(budget_bytes=32, block_tokens=4), without, scheduling)
    assert sum(s.microbatches for s in with_answers.totals.stages) <= sum(s.microbatches for s in plain.totals.stages)
    assert with_answers.totals.prefix[0].evictions > plain.totals.prefix[0].evictions
