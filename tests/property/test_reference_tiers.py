"""Tiers of the reference engine against what can be worked out by hand, and against a plain LRU."""

import random
from collections import Counter

import msgspec
import pytest

from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.testing import ListWorkload, request, uniform_plan
from tests.reference.fleet_results import run_fleet
from tests.reference.fleet_types import Fleet, FleetRecord, FleetResults, Pool, Port, Tier

CACHING = Scheduling(batching="greedy", prefix_cache=True, hash_block_tokens=4, snapshot_tokens=4)
APART_NS = 100_000

# Two stages of 100 and 50 ns, whatever is in a microbatch; chunks of 4 tokens; room for 12 blocks of 1,000 bytes on
# each stage.
PLAN = uniform_plan(
    service_ns=[100, 50], batched_tokens=4, block_tokens=4, kv_block_bytes=1_000, kv_budget_bytes=12_000
)
# 9 tokens: two blocks that can be hit, and one token more. The second request takes all 12 blocks, so the first one's
# go down; the third one is the first again.
RETURNING = [
    request(0, 0, prompt_tokens=9, output_tokens=1, hash_ids=(1, 2)),
    request(1, APART_NS, prompt_tokens=47, output_tokens=1),
    request(2, 2 * APART_NS, prompt_tokens=9, output_tokens=1, hash_ids=(1, 2)),
]


def run(rows: list[Request], host: Tier | None, *, plan_bytes: int = 0, **settings: object) -> FleetResults:
    """On one replica of that plan, or with another budget."""
    plan = PLAN
    if plan_bytes:
        stages = tuple(msgspec.structs.replace(s, kv_budget_bytes=plan_bytes) for s in PLAN.stages)
        plan = msgspec.structs.replace(PLAN, stages=stages)
    fleet = Fleet((Pool(plan, CACHING, host=host),), **settings)  # type: ignore[arg-type]
    return run_fleet(fleet, ListWorkload(rows), seed=0)


def ttft_ns(record: FleetRecord) -> int:
    """From arrival to first token."""
    assert record.request.first_token_ns is not None
    return record.request.first_token_ns - record.request.arrival_ns


def host(read_bytes_per_s: int, latency_ns: int) -> Tier:
    """Large enough, and quick to write."""
    return Tier(10**6, 10**9, read_bytes_per_s, latency_ns)


def test_a_lone_request_whose_prompt_lies_in_host_memory() -> None:
    """Two blocks of 2,000 bytes at 1 byte/ns, 7 ns, and the chunk of the last token: 100 + 50 ns."""
    results = run(RETURNING, host(10**9, 7), load="always")
    assert ttft_ns(results.requests[2]) == 4_000 + 7 + 150
    load = results.requests[2].load
    assert load is not None and (load.host_tokens, load.store_tokens) == (8, 0)
    assert results.requests[2].request.cached_tokens == 8
    assert results.stages[0].idle_ns["transfer"] == 4_007


def test_a_load_that_takes_longer_than_the_prefill_is_not_made() -> None:
    """The two chunks that it would save take 150 ns each, alone; the load: 40 ns at 100 bytes/ns, and a latency."""
    made, not_made = (run(RETURNING, host(10**11, 300 - 40 + late)).requests[2] for late in (0, 1))
    assert made.load is not None and ttft_ns(made) == 300 + 150
    assert not_made.load is None and not_made.request.cached_tokens == 0
    assert ttft_ns(not_made) == 350  # chunks leave every 100 ns: 0, 100 and 200


def test_what_is_under_way_to_the_tier_is_not_there() -> None:
    """The first request's blocks are written until 4,000 ns after they went down, at 1 byte/ns."""
    for later_ns, loaded in ((3_999, False), (4_000, True)):
        rows = [*RETURNING[:2], msgspec.structs.replace(RETURNING[2], arrival_ns=APART_NS + later_ns)]
        assert (run(rows, host(10**12, 0)).requests[2].load is not None) == loaded


def test_a_store_serves_another_replica() -> None:
    """The first replica's blocks, seen by nobody there any more, are loaded by the second."""
    two = msgspec.structs.replace(PLAN, replicas=2)
    fleet = Fleet((Pool(two, CACHING),), store=host(10**12, 3), offload="write-through")
    rows = [RETURNING[0], msgspec.structs.replace(RETURNING[2], index=1)]
    results = run_fleet(fleet, ListWorkload(rows), seed=0)
    assert [record.request.replica for record in results.requests] == [0, 1]
    load = results.requests[1].load
    assert load is not None and load.store_tokens == 8
    assert ttft_ns(results.requests[1]) == 4 + 3 + 150


def test_a_prompt_is_loaded_where_it_is_prefilled_and_handed_over() -> None:
    """4,007 ns of loading, 150 of prefill, 6,000 bytes of transfer at 1 byte/ns; destination-first and streamed."""
    port = Port(10**9, 10**9)
    pools = (Pool(PLAN, CACHING, "prefill", port, host(10**9, 7)), Pool(PLAN, CACHING, "decode", port))
    rows = [msgspec.structs.replace(r, output_tokens=2, max_output_tokens=2) for r in RETURNING]
    fleet = Fleet(pools, handover="destination-first", streamed=True, load="always")
    last = run_fleet(fleet, ListWorkload(rows), seed=0).requests[2]
    assert ttft_ns(last) == 4_007 + 150
    assert last.handover is not None and last.handover.transfer_end_ns == 2 * APART_NS + 4_157 + 6_000


def test_a_block_that_is_being_written_makes_room_for_nobody() -> None:
    """Host memory of one block; two go down at one instant, the deeper one first: the other one is dropped."""
    one = Tier(2_000, 10**9, 10**9)
    tier = run(RETURNING[:2], one).tiers[0]
    assert (tier.written_blocks, tier.dropped_blocks, tier.evicted_blocks) == (1, 1, 0)


def test_loads_go_one_after_the_other() -> None:
    """Both at one instant, 4,000 bytes each at 1 byte/ns."""
    rows = [
        request(0, 0, prompt_tokens=9, output_tokens=1, hash_ids=(1, 2)),
        request(1, APART_NS, prompt_tokens=9, output_tokens=1, hash_ids=(3, 4)),
        request(2, 2 * APART_NS, prompt_tokens=47, output_tokens=1),
        request(3, 3 * APART_NS, prompt_tokens=9, output_tokens=1, hash_ids=(1, 2)),
        request(4, 3 * APART_NS, prompt_tokens=9, output_tokens=1, hash_ids=(3, 4)),
    ]
    loads = [record.load for record in run(rows, host(10**9, 7), load="always").requests[3:]]
    assert [load.landed_ns - 3 * APART_NS for load in loads if load] == [4_007, 8_007]


def test_of_several_blocks_at_once_the_deepest_is_the_first_to_go() -> None:
    """Host memory of two blocks, write-through: a third one takes the place of the second one of a chain."""
    chain = request(0, 0, prompt_tokens=9, output_tokens=1, hash_ids=(1, 2))
    other = request(0, 0, prompt_tokens=5, output_tokens=1, hash_ids=(3,))
    clean = request(0, 0, prompt_tokens=47, output_tokens=1)  # takes the whole device
    two = Tier(4_000, 10**9, 10**9)
    for rows in ([chain, other, clean, chain], [chain, clean, chain, other, clean, chain]):
        long_chunks = msgspec.structs.replace(CACHING, batched_tokens=64)
        told = [msgspec.structs.replace(r, index=i, arrival_ns=i * APART_NS) for i, r in enumerate(rows)]
        fleet = Fleet((Pool(PLAN, long_chunks, host=two),), offload="write-through", load="always")
        load = run_fleet(fleet, ListWorkload(told), seed=0).requests[-1].load
        assert load is not None and load.host_tokens == 4


class Lru:
    """Blocks, the one used last at the end; what is put out goes to the next one."""

    def __init__(self, blocks: int, below: "Lru | None" = None) -> None:
        self.blocks, self.below, self.held = blocks, below, list[int]()
        self.reading: int | None = None  # what is read from it now, and stays

    def use(self, block: int) -> bool:
        """Whether it is there; then it is the one used last."""
        if block not in self.held:
            return False
        self.held.remove(block)
        self.held.append(block)
        return True

    def put(self, block: int) -> None:
        """It comes in, for the one used least recently that nobody reads; or not at all."""
        if self.use(block):
            return
        if len(self.held) >= self.blocks:
            victims = [other for other in self.held if other != self.reading]
            if not victims:
                return
            self.held.remove(victims[0])
            if self.below is not None:
                self.below.put(victims[0])
        self.held.append(block)


def plain_hits(blocks: list[int], device_blocks: int, host_lru: Lru, store_lru: Lru, offload: str) -> list[str]:
    """Where each of these blocks is found, one after the other."""
    device, found = Lru(device_blocks), list[str]()
    for block in blocks:
        place = next((n for n, lru in (("host", host_lru), ("store", store_lru)) if block in lru.held), "nowhere")
        place = "device" if block in device.held else place
        source = {"host": host_lru, "store": store_lru}.get(place, device)
        source.reading = block
        if not device.use(block):
            if len(device.held) == device.blocks:
                evicted = device.held.pop(0)
                if offload == "evict":
                    host_lru.put(evicted)
            device.held.append(block)
        source.use(block)
        source.reading = None
        if offload == "write-through" and place == "nowhere":
            host_lru.put(block)
        found.append(place)
    return found


@pytest.mark.parametrize("offload", ["evict", "write-through"])
@pytest.mark.parametrize("number", range(8))
def test_tiers_hit_as_a_plain_lru_does(number: int, offload: str) -> None:
    """Prompts of one block and a token: the device keeps one block less than it has, as the last token has one."""
    rnd = random.Random(number)
    blocks = [min(rnd.randint(1, 9), rnd.randint(1, 9)) for _ in range(120)]
    sizes = rnd.randint(2, 3), rnd.randint(2, 4), rnd.randint(2, 4)  # of the device, the host, the store
    rows = [
        request(i, i * APART_NS, prompt_tokens=5, output_tokens=1, hash_ids=(block,)) for i, block in enumerate(blocks)
    ]
    tiers = [Tier(2_000 * size, 10**10, 10**10) for size in sizes[1:]]
    results = run(rows, tiers[0], plan_bytes=1_000 * sizes[0], store=tiers[1], offload=offload, load="always")
    store_lru = Lru(sizes[2])
    wanted = plain_hits(blocks, sizes[0] - 1, Lru(sizes[1], store_lru), store_lru, offload)
    assert [place_of(record) for record in results.requests] == wanted
    assert len(Counter(wanted)) >= 3


def place_of(record: FleetRecord) -> str:
    """Where its block was."""
    if record.load is not None:
        return "host" if record.load.host_tokens else "store"
    return "device" if record.request.cached_tokens else "nowhere"
