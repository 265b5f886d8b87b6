"""Hand-overs and tiers of the reference engine against what can be worked out by hand."""

import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from stageline.cost.entries import Affine
from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Request
from stageline.plan.schema import Plan, Serving
from stageline.testing import ListWorkload, request, uniform_plan
from tests.reference import plans
from tests.reference.engine import Engine
from tests.reference.fleet import FleetEngine
from tests.reference.fleet_results import run_fleet
from tests.reference.fleet_types import Fleet, FleetResults, HandOverRecord, Pool, Port

GREEDY = Scheduling(batching="greedy")
GB_PER_S = 10**9

# Two stages of 100 and 50 ns, whatever is in a microbatch; chunks of 4 tokens. A prompt of 10 tokens leaves at 0, 100
# and 200, when the first stage is free again, and its chunks are back at 150, 250 and 350.
PREFILL = uniform_plan(service_ns=[100, 50], batched_tokens=4, block_tokens=4, kv_block_bytes=1_000, state_bytes=500)
# A token takes 100 ns.
DECODE = uniform_plan(service_ns=[40, 60], block_tokens=16, kv_block_bytes=9, state_bytes=9)
# 10 tokens are 3 blocks of 1,000 bytes on each of two stages, and two states of 500 bytes.
LONE = request(0, 0, prompt_tokens=10, output_tokens=4)
SENT_BYTES = 7_000


def pools(
    sends_per_s: int = GB_PER_S, takes_per_s: int = 2 * GB_PER_S, prefill: Plan = PREFILL, decode: Plan = DECODE
) -> tuple[Pool, Pool]:
    """One pool that prefills and one that decodes; the larger latency of their ports is 30 ns."""
    return (
        Pool(prefill, GREEDY, "prefill", Port(sends_per_s, sends_per_s, latency_ns=30)),
        Pool(decode, GREEDY, "decode", Port(takes_per_s, takes_per_s, latency_ns=20)),
    )


def run(*rows: Request | Cancellation, pair: tuple[Pool, ...] | None = None, **settings: Any) -> FleetResults:
    """These requests on a fleet of two pools."""
    return run_fleet(Fleet(pair or pools(), **settings), ListWorkload(rows), seed=0)


def handover(results: FleetResults, index: int = 0) -> HandOverRecord:
    """What is told of the hand-over of a request."""
    record = results.requests[index].handover
    assert record is not None
    return record


@pytest.mark.parametrize("order", ["source-first", "destination-first"])
def test_a_lone_request(order: str) -> None:
    """7,000 bytes at the lesser bandwidth, 1 byte/ns, leave at 350; the first token is the prefill's."""
    results = run(LONE, handover=order)
    assert results.tokens_ns[0] == [350, 350 + 7_000 + 30 + 100, 7_580, 7_680]
    assert handover(results) == HandOverRecord(
        prefill_replica=0, decode_replica=1, reserved_ns=350 if order == "source-first" else 0,
        transfer_start_ns=350, transfer_end_ns=7_350, landed_ns=7_380, sent_bytes=SENT_BYTES,
    )  # fmt: skip


@pytest.mark.parametrize("order", ["source-first", "destination-first"])
def test_a_lone_request_whose_first_token_is_computed_where_it_decodes(order: str) -> None:
    """The prompt's last token again, as a decode step: 100 ns after the landing at 7,380."""
    assert run(LONE, handover=order, first_token="decode").tokens_ns[0] == [7_480, 7_580, 7_680, 7_780]


def test_a_lone_request_whose_chunks_are_sent_as_they_come() -> None:
    """Back at 150, 250 and 350 with 4, 8 and 10 tokens written: 1, 2 and 3 blocks; the states go with the last.

    2,000 bytes from 150 to 2,150, 2,000 until 4,150, and 2,000 + 1,000 until 7,150.
    """
    results = run(LONE, handover="destination-first", streamed=True)
    assert results.tokens_ns[0] == [350, 7_150 + 30 + 100, 7_380, 7_480]
    told = handover(results)
    assert (told.transfer_start_ns, told.transfer_end_ns, told.landed_ns) == (150, 7_150, 7_180)
    assert told.sent_bytes == SENT_BYTES


def test_a_lone_request_whose_last_chunk_alone_is_late() -> None:
    """At 100 bytes/ns chunks are gone before the next is back: 3,000 bytes leave at 350 and take 30 ns."""
    results = run(LONE, pair=pools(100 * GB_PER_S, 100 * GB_PER_S), handover="destination-first", streamed=True)
    assert results.tokens_ns[0][:2] == [350, 350 + 30 + 30 + 100]


def test_a_stage_that_awaits_kv_is_idle_for_it() -> None:
    """Source-first: the decode replica is empty until 350, has a request that is under way until 7,380, then serves.

    The second of two requests makes the gap one between two services: 0 is over at 7,680, 1 is back from prefill later.
    """
    later = msgspec.structs.replace(LONE, index=1, arrival_ns=20_000)
    results = run(LONE, later)
    # first arrival 0; last token 20,000 + 7,680
    first_stage = results.stages[2]
    assert first_stage.replica == 1 and first_stage.stage == 0
    # three decode steps of each request; between them the token is at the second stage for 60 ns: starved
    assert first_stage.busy_ns == 6 * 40
    assert first_stage.idle_ns["fill"] == 7_380
    assert first_stage.idle_ns["starved"] == 4 * 60 + 60  # the last token of 0 is at the second stage until 7,680
    assert first_stage.idle_ns["empty"] == 20_350 - 7_680
    assert first_stage.idle_ns["transfer"] == 7_000 + 30
    assert first_stage.idle_ns["drain"] == 60


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("number", range(10))
def test_with_infinite_bandwidth_a_lone_request_is_two_runs_glued(number: int, streamed: bool) -> None:
    """One prefills, one decodes, on plans of any shape; the transfer takes its least time, 1 ns."""
    rnd = random.Random(number)
    prefill, decode = (steady(plans.random_plan(rnd, 60, pressed=False)) for _ in range(2))
    lone = request(0, rnd.randint(0, 9), prompt_tokens=rnd.randint(1, 40), output_tokens=rnd.randint(2, 12))
    endless = Port(10**18, 10**18)
    pair = (Pool(prefill, GREEDY, "prefill", endless), Pool(decode, GREEDY, "decode", endless))
    glued = run(lone, pair=pair, handover="destination-first" if streamed else "source-first", streamed=streamed)
    alone = [run(lone, pair=(Pool(plan, GREEDY),)).tokens_ns[0] for plan in (prefill, decode)]
    first_ns = alone[0][0]
    assert glued.tokens_ns[0] == [first_ns, *(first_ns + 1 + ns - alone[1][0] for ns in alone[1][1:])]


def steady(plan: Plan) -> Plan:
    """With room for one long request, and times that do not depend on which replica or microbatch it is."""
    costs = tuple(c for c in plan.costs if isinstance(c, Affine))
    assert len(costs) == len(plan.costs)
    return msgspec.structs.replace(
        plan,
        replicas=1,
        costs=tuple(msgspec.structs.replace(c, imbalance_ns=0) for c in costs),
        links=tuple(msgspec.structs.replace(link, jitter_ns=0) for link in plan.links),
        stages=tuple(msgspec.structs.replace(s, kv_budget_bytes=10**9) for s in plan.stages),
    )


def test_a_full_port_gives_its_bandwidth() -> None:
    """20 requests are prefilled in no time; the source's port carries 7,000 bytes every 7,000 ns, without a gap."""
    rows = [msgspec.structs.replace(LONE, index=i) for i in range(20)]
    results = run(*rows)
    told = [handover(results, i) for i in range(20)]
    starts_ns = sorted(t.transfer_start_ns or 0 for t in told)
    assert [b - a for a, b in pairwise(starts_ns)] == [7_000] * 19
    assert results.ports[0].egress_busy_ns == 20 * 7_000
    assert results.ports[0].egress_bytes == results.ports[1].ingress_bytes == 20 * SENT_BYTES


def test_two_sources_share_the_port_of_one_destination() -> None:
    """Two replicas that could send twice as much: each gets half of what the destination takes."""
    rows = [msgspec.structs.replace(LONE, index=i) for i in range(20)]
    two = msgspec.structs.replace(PREFILL, replicas=2)
    results = run(*rows, pair=pools(4 * GB_PER_S, 2 * GB_PER_S, prefill=two))
    told = [handover(results, i) for i in range(20)]
    first_ns = min(t.transfer_start_ns or 0 for t in told)
    last_ns = max(t.transfer_end_ns or 0 for t in told)
    assert last_ns - first_ns == 20 * SENT_BYTES // 2
    assert [port.egress_bytes for port in results.ports] == [10 * SENT_BYTES, 10 * SENT_BYTES, 0]
    assert results.ports[2].ingress_busy_ns == last_ns - first_ns


@pytest.mark.parametrize(("decode_ns", "per_request_ns"), [(10, 300), (700, 700)])
def test_throughput_is_that_of_the_slower_pool(decode_ns: int, per_request_ns: int) -> None:
    """Prefill takes 300 ns a request; decoding two tokens of one request at a time takes 10 + 10 or 350 + 350 ns."""
    prefill = uniform_plan(1, service_ns=300, kv_block_bytes=1)
    decode = uniform_plan(1, service_ns=decode_ns if decode_ns < 100 else 350, microbatch=1, credits=1)
    rows = [request(i, 0, prompt_tokens=4, output_tokens=3) for i in range(400)]
    pair = pools(10**15, 10**15, prefill=prefill, decode=decode)
    settings = msgspec.structs.replace(GREEDY, microbatch=1)
    results = run(*rows, pair=(Pool(pair[0].plan, settings, "prefill"), Pool(pair[1].plan, settings, "decode")))
    assert results.window_end_ns == pytest.approx(400 * per_request_ns, rel=0.01)


def test_short_prompts_are_prefilled_where_they_decode() -> None:
    """Of 4 and 5 tokens only the longer one is handed over."""
    rows = [request(0, 0, prompt_tokens=4), request(1, 0, prompt_tokens=5)]
    results = run(*rows, conditional_tokens=4)
    assert [record.request.replica for record in results.requests] == [1, 0]
    assert [record.handover is None for record in results.requests] == [True, False]


def test_what_the_decode_replica_has_cached_does_not_travel() -> None:
    """8 of 10 tokens are two blocks of each stage: 4,000 bytes less. Without a cache there, all travels."""
    caching = msgspec.structs.replace(GREEDY, prefix_cache=True, hash_block_tokens=4, snapshot_tokens=4)
    plain = msgspec.structs.replace(DECODE, block_tokens=4, stages=tuple(
        msgspec.structs.replace(s, state_bytes=0) for s in DECODE.stages
    ))  # fmt: skip
    pair = (pools()[0], Pool(plain, caching, "decode"))
    rows = [msgspec.structs.replace(LONE, index=i, arrival_ns=20_000 * i, hash_ids=(7, 8, i)) for i in range(2)]
    sent = {
        transfer: [handover(run(*rows, pair=pair, transfer=transfer), i).sent_bytes for i in range(2)]
        for transfer in ("all", "missing")
    }
    assert sent == {"all": [SENT_BYTES] * 2, "missing": [SENT_BYTES, SENT_BYTES - 4_000]}


@pytest.mark.parametrize(
    ("at_ns", "ends_ns"),
    [
        (10, 150),  # in the prefill, with its first chunk in flight
        (300, 350),  # its last chunk is in flight
        (1_000, 7_380),  # under way: at its landing
        (7_400, 7_480),  # with its first decode step in flight
    ],
)
def test_a_client_that_leaves_while_its_request_is_served(at_ns: int, ends_ns: int) -> None:
    results = run(LONE, Cancellation(index=0, at_ns=at_ns))
    assert results.requests[0].request.outcome == "cancelled"
    assert results.window_end_ns == ends_ns


def test_a_client_that_leaves_while_its_chunks_are_under_way() -> None:
    """Two chunks are booked at 150 and 250, and end at 2,150 and 4,150; the third brings nothing any more."""
    results = run(LONE, Cancellation(index=0, at_ns=300), handover="destination-first", streamed=True)
    assert results.window_end_ns == 4_150 + 30
    assert results.ports[0].egress_bytes == 4_000


def test_a_client_that_leaves_is_gone_from_its_source_before_its_chunks_have_landed() -> None:
    """It is the source's request until its last chunk is back, at 350; then only its KV is there."""
    later = msgspec.structs.replace(LONE, index=1, arrival_ns=20_000)
    results = run(LONE, Cancellation(index=0, at_ns=300), later, handover="destination-first", streamed=True)
    first_stage = results.stages[0]
    assert first_stage.idle_ns["starved"] == 350 - 300
    assert first_stage.idle_ns["empty"] == 20_000 - 350


def test_kv_is_pinned_until_the_last_of_its_transfers_has_ended() -> None:
    """Streamed, in three transfers that end at 2,150, 4,150 and 7,150: who needs the room waits for the last."""
    stages = tuple(msgspec.structs.replace(s, kv_budget_bytes=3 * 1_000 + 500) for s in PREFILL.stages)
    pair = pools(prefill=msgspec.structs.replace(PREFILL, stages=stages))
    rows = [LONE, msgspec.structs.replace(LONE, index=1, arrival_ns=1_000)]
    results = run(*rows, pair=pair, handover="destination-first", streamed=True)
    assert [record.request.admitted_ns for record in results.requests] == [0, 7_150]


def test_the_context_of_the_first_step_is_what_came() -> None:
    """Reading a token of context takes 1 ns on each stage. The first step is the prompt's last token, or the next."""
    reading = msgspec.structs.replace(
        DECODE, costs=tuple(Affine(base_ns=ns, token_ns=0, kv_token_ns=1) for ns in (40, 60))
    )
    for first_token, context_tokens in (("prefill", 11), ("decode", 10)):
        times_ns = run(LONE, pair=pools(decode=reading), first_token=first_token).tokens_ns[0]
        assert next(ns for ns in times_ns if ns > 7_380) == 7_380 + 100 + 2 * context_tokens


# Ranks of 4 tokens each, 8 together: two prompts may travel in one microbatch, which takes 100 ns.
RANKS = msgspec.structs.replace(
    uniform_plan(1, service_ns=100, batched_tokens=8, block_tokens=4, kv_block_bytes=10, kv_budget_bytes=50, credits=1),
    serving=Serving(engine="test", ranks=2),
)


def run_ranks(*rows: Request, budget_bytes: int) -> FleetResults:
    """Streamed, on a source whose sequences grow block by block."""
    stages = tuple(msgspec.structs.replace(s, kv_budget_bytes=budget_bytes) for s in RANKS.stages)
    settings = msgspec.structs.replace(GREEDY, kv="grow")
    source = Pool(msgspec.structs.replace(RANKS, stages=stages), settings, "prefill", Port(10**6, 10**6))
    return run(*rows, pair=(source, pools()[1]), handover="destination-first", streamed=True)


def test_two_streamed_prompts_do_not_wait_for_each_other_for_ever() -> None:
    """Three blocks each, four in all: had both grown to two, neither could go on, nor make room."""
    rows = [request(i, 0, prompt_tokens=12, output_tokens=2) for i in range(2)]
    results = run_ranks(*rows, budget_bytes=40)
    assert [record.request.outcome for record in results.requests] == ["finished"] * 2


def test_a_prompt_with_bytes_under_way_makes_room_for_nobody() -> None:
    """The first one is not handed over and grows; at 200 it wants a third of five blocks, and the second has three.

    The second one is reserved at 0, after the first has left; its chunks leave at 100, 200 and 300.
    """
    rows = [
        request(0, 0, prompt_tokens=16, output_tokens=1),
        request(1, 0, prompt_tokens=12, output_tokens=2),
    ]
    results = run_ranks(*rows, budget_bytes=50)
    assert [record.request.preemptions for record in results.requests] == [0, 0]
    assert results.tokens_ns[1][0] == 400


def test_short_prompts_take_turns_at_the_replicas_that_decode() -> None:
    two = msgspec.structs.replace(DECODE, replicas=2)
    rows = [request(i, 0, prompt_tokens=4) for i in range(3)]
    results = run(*rows, pair=pools(decode=two), conditional_tokens=4)
    assert [record.request.replica for record in results.requests] == [1, 2, 1]


def test_what_has_landed_can_be_hit_before_it_is_used() -> None:
    """7,380: the landing. The cache then has the two full blocks of 4 tokens; before, nothing."""
    caching = msgspec.structs.replace(GREEDY, prefix_cache=True, hash_block_tokens=4, snapshot_tokens=4)
    decode = msgspec.structs.replace(DECODE, block_tokens=4)
    pair = (pools()[0], Pool(decode, caching, "decode"))
    rows = [msgspec.structs.replace(LONE, hash_ids=(1, 2))]
    engine, held = FleetEngine(Fleet(pair), ListWorkload(rows), 0), dict[int, int]()

    def look(_: Engine) -> None:
        cache = engine.fleet_replicas[1].cache
        assert cache is not None
        held.setdefault(engine.now_ns, len(cache.held))

    engine.run(look)
    assert [held[ns] for ns in (350, 7_350, 7_380)] == [0, 0, 2]
