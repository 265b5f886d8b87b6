"""Host memory and a store below prefix caches (rule 12), worked by hand.

Two stages serve a microbatch in 100 and 50 ns, whatever is in it; links take no time. Chunks are of 4 tokens, as are
blocks, which weigh 1,000 bytes on each stage, so that 12 fit; tiers are written at 1 byte/ns.
"""

import random
from collections import OrderedDict
from typing import Any

import msgspec
import pytest

from stageline.engine.fleet import Fleet, HandOver, Pool, Tier
from stageline.engine.served import serve
from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, LoadRecord, Request
from stageline.plan.schema import Plan, Serving
from stageline.testing import Run, request, run_fleet, uniform_plan

CACHING = Scheduling(batching="greedy", prefix_cache=True, hash_block_tokens=4, snapshot_tokens=4)
APART_NS = 100_000
PLAN = uniform_plan(
    service_ns=[100, 50], batched_tokens=4, block_tokens=4, kv_block_bytes=1_000, kv_budget_bytes=12_000
)


def prompt(index: int, arrival_ns: int, *blocks: int, **changes: Any) -> Request:
    """A prompt of these blocks and one token, for one token."""
    return request(
        index, arrival_ns, **{"prompt_tokens": 4 * len(blocks) + 1, "output_tokens": 1, "hash_ids": blocks} | changes
    )


# The second request takes all 12 blocks, so the first one's two go down; the third one is the first again.
RETURNING = [
    prompt(0, 0, 1, 2),
    request(1, APART_NS, prompt_tokens=47, output_tokens=1),
    prompt(2, 2 * APART_NS, 1, 2),
]


def host(read_bytes_per_s: int = 10**9, latency_ns: int = 7, **changes: int) -> Tier:
    figures = {"capacity_bytes": 10**6, "write_bytes_per_s": 10**9} | changes
    return Tier(read_bytes_per_s=read_bytes_per_s, latency_ns=latency_ns, **figures)


def run(*events: Any, plan: Plan = PLAN, memory: Tier | None = None, replicas: int = 1, **settings: Any) -> Run:
    """Through one pool of role `both`."""
    pool = Pool(
        name="p", plan=msgspec.structs.replace(plan, replicas=replicas),
        scheduling=settings.pop("scheduling", CACHING), host=memory,
    )  # fmt: skip
    return run_fleet(serve(Fleet(pools=(pool,), **settings)), events)


def ttft_ns(seen: Run, index: int) -> int:
    record = seen.requests[index]
    assert record.first_token_ns is not None
    return record.first_token_ns - record.arrival_ns


def test_a_lone_request_whose_prompt_lies_in_host_memory() -> None:
    """Two blocks of 2,000 bytes at 1 byte/ns, 7 ns, and the chunk of the last token: 100 + 50 ns."""
    seen = run(*RETURNING, memory=host(), load="always")
    record = seen.requests[2]
    assert ttft_ns(seen, 2) == 4_000 + 7 + 150
    assert record.load == LoadRecord(host_tokens=8, start_ns=2 * APART_NS, landed_ns=2 * APART_NS + 4_007)
    assert (record.admitted_ns, record.cached_tokens) == (2 * APART_NS, 8)
    assert [stage.idle_ns["transfer"] for stage in seen.totals.stages] == [4_007, 4_007]
    (tier,) = seen.totals.tiers
    assert (tier.replica, tier.hit_tokens, tier.read_bytes, tier.written_bytes) == (0, 8, 4_000, 4_000)
    assert (tier.peak_bytes, tier.evicted_blocks, tier.dropped_blocks) == (4_000, 0, 0)
    assert [r.load for r in seen.requests[:2]] == [None, None]


def test_a_load_that_takes_longer_than_the_prefill_is_not_made() -> None:
    """The two chunks that it would save take 150 ns each, alone; the load: 40 ns at 100 bytes/ns, and a latency."""
    made, not_made = (run(*RETURNING, memory=host(10**11, 300 - 40 + late)) for late in (0, 1))
    assert (made.requests[2].load is not None, ttft_ns(made, 2)) == (True, 300 + 150)
    assert (not_made.requests[2].load, not_made.requests[2].cached_tokens) == (None, 0)
    assert ttft_ns(not_made, 2) == 350  # chunks leave every 100 ns: 0, 100 and 200


def test_chunks_of_ranks_are_what_a_load_is_compared_with() -> None:
    """With two ranks a chunk holds two tokens: eight tokens are four chunks of 150 ns."""
    plan = msgspec.structs.replace(PLAN, serving=Serving(engine="x", ranks=2))
    made, not_made = (run(*RETURNING, plan=plan, memory=host(10**11, 600 - 40 + late)) for late in (0, 1))
    assert (made.requests[2].load is not None, not_made.requests[2].load) == (True, None)


@pytest.mark.parametrize(("later_ns", "loaded"), [(3_999, False), (4_000, True)])
def test_what_is_under_way_to_the_tier_is_not_there(later_ns: int, loaded: bool) -> None:
    """The first request's blocks are written until 4,000 ns after they went down."""
    again = msgspec.structs.replace(RETURNING[2], arrival_ns=APART_NS + later_ns)
    seen = run(*RETURNING[:2], again, memory=host(10**12, 0), load="always")
    assert (seen.requests[2].load is not None) == loaded


def test_write_through_fills_the_tier_before_anything_is_evicted() -> None:
    """A block goes down when its chunk is back: at 150 and at 250, the first for 2,000 ns; eviction brings nothing."""
    written = {
        offload: run(RETURNING[0], memory=host(), offload=offload).totals.tiers[0].written_blocks
        for offload in ("evict", "write-through")
    }
    assert written == {"evict": 0, "write-through": 2}
    seen = run(*RETURNING, memory=host(), load="always", offload="write-through")
    assert seen.totals.tiers[0].written_blocks == 2  # the second request has no identities
    assert ttft_ns(seen, 2) == 4_157


def test_write_through_takes_what_accepted_drafts_complete() -> None:
    """The prompt's block and two of the answer, with drafts or without: each after the step that caches it."""
    scheduling = msgspec.structs.replace(CACHING, speculate=2, acceptance_ppm=1_000_000)
    asked = prompt(0, 0, 1, output_tokens=9, max_output_tokens=9, output_hash_ids=(8, 9))
    for settings in (CACHING, scheduling):
        seen = run(asked, memory=host(), offload="write-through", scheduling=settings)
        assert seen.totals.tiers[0].written_blocks == 3


def test_what_a_client_that_has_left_computed_is_not_written_through() -> None:
    """Of the chunks that are back at 150, 250 and 350 the first counts."""
    seen = run(
        prompt(0, 0, 1, 2), Cancellation(index=0, at_ns=200), memory=host(), offload="write-through"
    )  # fmt: skip
    assert seen.totals.tiers[0].written_blocks == 1


def test_a_store_serves_another_replica() -> None:
    """The blocks of the first replica are loaded by the second."""
    rows = [RETURNING[0], msgspec.structs.replace(RETURNING[2], index=1)]
    store = host(10**12, 3)
    seen = run(*rows, replicas=2, store=store, offload="write-through")
    assert [r.replica for r in seen.requests] == [0, 1]
    assert seen.requests[1].load == LoadRecord(store_tokens=8, start_ns=2 * APART_NS, landed_ns=2 * APART_NS + 7)
    assert ttft_ns(seen, 1) == 7 + 150
    assert [(t.replica, t.hit_blocks, t.written_blocks) for t in seen.totals.tiers] == [(None, 2, 3 - 1)]


@pytest.mark.parametrize(("latency_ns", "took_ns"), [(50, 2_000), (2_500, 2_700)])
def test_both_tiers_are_read_at_once(latency_ns: int, took_ns: int) -> None:
    """Host memory of one block: the deeper one comes first and makes way for the other. The later load counts."""
    rows = [
        prompt(0, 0, 1, 2),
        request(1, APART_NS, prompt_tokens=43, output_tokens=1),
        request(2, 2 * APART_NS, prompt_tokens=47, output_tokens=1),
        prompt(3, 3 * APART_NS, 1, 2),
    ]
    small, store = host(10**9, 0, capacity_bytes=2_000), host(10**10, latency_ns)
    seen = run(*rows, memory=small, store=store, load="always")
    start_ns = 3 * APART_NS
    assert seen.requests[3].load == LoadRecord(
        host_tokens=4, store_tokens=4, start_ns=start_ns, landed_ns=start_ns + took_ns
    )
    assert ttft_ns(seen, 3) == took_ns + 150


def test_a_tier_that_is_not_worth_it_hides_what_lies_below() -> None:
    """Block 1 in host memory would take 2,000 ns, and 150 without; block 2 in the store would take 2."""
    rows = [
        prompt(0, 0, 1, 2),
        request(1, APART_NS, prompt_tokens=43, output_tokens=1),
        request(2, 2 * APART_NS, prompt_tokens=47, output_tokens=1),
        prompt(3, 3 * APART_NS, 1, 2),
    ]
    small, store = host(10**9, 0, capacity_bytes=2_000), host(10**12, 0)
    seen = run(*rows, memory=small, store=store)
    assert (seen.requests[3].load, ttft_ns(seen, 3)) == (None, 350)  # block 2 in the store is of no use without 1


def test_routing_sees_host_memory_if_it_is_told_to() -> None:
    """Replica 1 has the prompt in host memory, replica 0 has more room."""
    for sees, chosen in ((False, 0), (True, 1)):
        rows = [
            prompt(0, 0, 8),
            prompt(1, 10, 1, 2),
            request(2, APART_NS, prompt_tokens=47, output_tokens=1),
            request(3, APART_NS, prompt_tokens=47, output_tokens=1),
            prompt(4, 2 * APART_NS, 1, 2),
        ]
        seen = run(
            *rows, replicas=2, memory=host(), balance="prefix", balance_sees_host=sees, load="always"
        )  # fmt: skip
        assert [r.replica for r in seen.requests] == [0, 1, 0, 1, chosen]
        assert (seen.requests[4].load is not None) == sees


def test_a_client_that_leaves_during_a_load() -> None:
    """It ends at the landing, nothing of it is cached, and its time is no time of requests that wait."""
    left_at_ns = 2 * APART_NS + 100
    seen = run(*RETURNING, Cancellation(index=2, at_ns=left_at_ns), memory=host(), load="always")
    assert (seen.requests[2].outcome, seen.requests[2].cached_tokens) == ("cancelled", 8)
    assert seen.totals.window_end_ns == 2 * APART_NS + 4_007
    again = prompt(3, 3 * APART_NS, 1, 2)
    seen = run(*RETURNING, Cancellation(index=2, at_ns=left_at_ns), again, memory=host(), load="always")
    assert ttft_ns(seen, 3) == 4_157
    assert seen.totals.stages[0].idle_ns["transfer"] == 4_007  # of the last one alone


def test_a_prompt_is_loaded_where_it_is_prefilled_and_handed_over() -> None:
    """4,007 ns of loading, 150 of prefill, 6,000 bytes of transfer at 1 byte/ns; destination-first and streamed."""
    pools = (
        Pool(name="p", plan=PLAN, scheduling=CACHING, role="prefill", host=host()),
        Pool(name="d", plan=PLAN, scheduling=CACHING, role="decode"),
    )
    rows = [msgspec.structs.replace(r, output_tokens=2, max_output_tokens=2) for r in RETURNING]
    hand_over = HandOver(bytes_per_s=10**9, order="destination-first", streamed=True)
    seen = run_fleet(serve(Fleet(pools=pools, hand_over=hand_over, load="always")), rows)
    last = seen.requests[2]
    assert ttft_ns(seen, 2) == 4_157
    assert last.load is not None and last.load.host_tokens == 8
    assert last.hand_over is not None and last.hand_over.end_ns == 2 * APART_NS + 4_157 + 6_000


class Lru:
    """Blocks by their last use; the one put out goes to the tier below."""

    def __init__(self, blocks: int, below: "Lru | None" = None) -> None:
        self.blocks, self.below = blocks, below
        self.held: OrderedDict[int, None] = OrderedDict()

    def use(self, block: int) -> None:
        if block in self.held:
            self.held.move_to_end(block)

    def put(self, block: int, *, reading: int | None = None) -> None:
        """`reading`: what stays, as it is being read."""
        if block not in self.held and len(self.held) == self.blocks:
            oldest = next((b for b in self.held if b != reading), None)
            if oldest is None:
                return
            del self.held[oldest]
            if self.below is not None:
                self.below.put(oldest)
        self.held[block] = None
        self.held.move_to_end(block)


@pytest.mark.parametrize("offload", ["evict", "write-through"])
def test_host_memory_hits_as_often_as_a_plain_lru(offload: str) -> None:
    """A random trace of 400 one-block prompts, of which a device of 4 blocks keeps 3 besides the last token's."""
    rnd = random.Random(17)
    trace = [min(rnd.randint(1, 12), rnd.randint(1, 12)) for _ in range(400)]
    plan = msgspec.structs.replace(
        PLAN, stages=tuple(msgspec.structs.replace(s, kv_budget_bytes=4_000) for s in PLAN.stages)
    )
    memory = host(10**12, 0, capacity_bytes=5 * 2_000, write_bytes_per_s=10**12)
    rows = [prompt(i, i * APART_NS, block) for i, block in enumerate(trace)]
    seen = run(*rows, plan=plan, memory=memory, load="always", offload=offload)
    lower = Lru(5)
    device = Lru(3, lower if offload == "evict" else None)
    hits = {"device": 0, "host": 0}
    for block in trace:
        if block in device.held:
            hits["device"] += 1
        elif block in lower.held:
            hits["host"] += 1
        elif offload == "write-through":
            lower.put(block)
        if block not in device.held and offload == "evict" and len(device.held) == 3:
            oldest = next(iter(device.held))
            del device.held[oldest]
            lower.put(oldest, reading=block)
        if block not in device.held:
            lower.use(block)
        device.put(block)
    (tier,) = seen.totals.tiers
    assert tier.hit_blocks == hits["host"] > 40
    assert sum(r.cached_tokens == 4 for r in seen.requests) == sum(hits.values())
