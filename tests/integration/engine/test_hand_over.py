"""Hand-over of KV from prefill to decode replicas (rule 11), worked by hand.

Every stage serves a microbatch in 100 ns, links take no time; a block of 16 tokens weighs 10 bytes, a port moves a byte
in 1 ns, and KV that has been sent can be used 5 ns later.
"""

from typing import Any

import pytest

from stageline.engine.fleet import Fleet, HandOver, Pool
from stageline.engine.served import serve
from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, HandOverRecord
from stageline.plan.schema import Plan
from stageline.testing import Run, request, run_fleet, uniform_plan


def plan(**changes: Any) -> Plan:
    """One stage of one device."""
    return uniform_plan(1, **{"kv_block_bytes": 10, "service_ns": 100} | changes)


def run(
    *events: Any, prefill: Plan | None = None, decode: Plan | None = None, settings: Any = None, **hand_over: Any
) -> Run:
    """Through one pool of each role."""
    scheduling = Scheduling(**settings or {})
    pools = (
        Pool(name="p", plan=prefill or plan(), role="prefill", scheduling=scheduling),
        Pool(name="d", plan=decode or plan(), role="decode", scheduling=scheduling),
    )
    hand_over = {"bytes_per_s": 10**9, "latency_ns": 5} | hand_over
    return run_fleet(serve(Fleet(pools=pools, hand_over=HandOver(**hand_over))), events)


def test_a_lone_request_source_first() -> None:
    """Prefill until 100, one block for 10 ns, 5 ns on the way, then a step every 100 ns."""
    seen = run(request())
    assert seen.tokens_ns == {0: [100, 215, 315]}
    (record,) = seen.requests
    assert (record.replica, record.admitted_ns, record.output_tokens) == (0, 0, 3)
    assert record.hand_over == HandOverRecord(
        decode_replica=1, reserved_ns=100, start_ns=100, end_ns=110, landed_ns=115, sent_bytes=10
    )


def test_a_lone_request_destination_first() -> None:
    """The same, but that the decode replica holds its KV from the beginning."""
    seen = run(request(), order="destination-first")
    assert seen.tokens_ns == {0: [100, 215, 315]}
    assert seen.requests[0].hand_over == HandOverRecord(
        decode_replica=1, reserved_ns=0, start_ns=100, end_ns=110, landed_ns=115, sent_bytes=10
    )


@pytest.mark.parametrize("order", ["source-first", "destination-first"])
def test_the_decode_replica_may_compute_the_first_token(order: str) -> None:
    seen = run(request(), order=order, first_token="decode")
    assert seen.tokens_ns == {0: [215, 315, 415]}


@pytest.mark.parametrize("order", ["source-first", "destination-first"])
def test_a_request_for_one_token_stays_where_it_is_prefilled(order: str) -> None:
    seen = run(request(output_tokens=1), order=order)
    assert (seen.tokens_ns, seen.requests[0].replica, seen.requests[0].hand_over) == ({0: [100]}, 0, None)


def test_ports_send_one_after_the_other() -> None:
    """Two prompts of one microbatch: the second one's block leaves when the first one's has left."""
    seen = run(request(0), request(1), settings={"credits": 1, "microbatch": 2})
    times = [(h.start_ns, h.end_ns) for r in seen.requests if (h := r.hand_over)]
    assert times == [(100, 110), (110, 120)]
    assert seen.tokens_ns == {0: [100, 215, 315], 1: [100, 315, 415]}


def test_a_decode_replica_without_room_strands_kv_at_the_source() -> None:
    """Each needs one block, and the decode replica holds one: the second one's stays pinned until the first has left.

    The prefill replica holds two; a third prompt waits there for the second one's block.
    """
    two, one = (plan(kv_budget_bytes=10 * blocks) for blocks in (2, 1))
    seen = run(*[request(i) for i in range(3)], prefill=two, decode=one)
    assert [h.reserved_ns for r in seen.requests if (h := r.hand_over)] == [100, 315, 530]
    assert [r.admitted_ns for r in seen.requests] == [0, 0, 110]


def test_who_leaves_while_its_kv_is_under_way_ends_at_its_landing() -> None:
    seen = run(request(), Cancellation(index=0, at_ns=105))
    (record,) = seen.requests
    assert (record.outcome, record.output_tokens, seen.totals.window_end_ns) == ("cancelled", 1, 115)


@pytest.mark.parametrize("order", ["source-first", "destination-first"])
@pytest.mark.parametrize("at_ns", [0, 50, 100, 105, 112, 115, 150, 215, 300])
def test_who_leaves_leaves_nothing_behind(order: str, at_ns: int) -> None:
    """Laws are checked after every event, and at the end every ledger is empty; the other request is not delayed."""
    small = plan(kv_budget_bytes=10)
    seen = run(request(0), Cancellation(index=0, at_ns=at_ns), request(1, 1000), decode=small, order=order)
    assert [r.outcome for r in seen.requests] == ["cancelled", "finished"]
    assert seen.tokens_ns[1] == [1100, 1215, 1315]


def test_a_decode_replica_whose_requests_all_wait_for_kv_is_idle_for_transfer() -> None:
    """Each KV is under way for 15 ns; before the second one's the replica is empty."""
    seen = run(request(0, output_tokens=2), request(1, 300, output_tokens=2))
    decode = seen.totals.stages[1]
    assert decode.idle_ns["fill"] == 115 and decode.idle_ns["transfer"] == 15
    assert decode.idle_ns["empty"] == 400 - 215


def test_full_blocks_can_be_hit_from_landing_on() -> None:
    """A `both` replica that takes hand-overs: what landed there is cached for who is prefilled there."""
    shared = {"hash_ids": (7, 8), "prompt_tokens": 33}
    scheduling = Scheduling(prefix_cache=True)
    pools = (
        Pool(name="p", plan=plan(), role="prefill", scheduling=scheduling),
        Pool(name="b", plan=plan(), scheduling=scheduling),
    )
    fleet = Fleet(pools=pools, hand_over=HandOver(bytes_per_s=10**9, latency_ns=5, decode_on_both=True))
    seen = run_fleet(serve(fleet), [request(0, **shared), request(1, 1000, **shared)])
    assert [(r.replica, r.cached_tokens) for r in seen.requests] == [(0, 0), (1, 32)]


def test_only_missing_blocks_are_sent() -> None:
    """The second prompt shares two full blocks with the first; 3 blocks are sent of the first, 1 of the second."""
    shared = {"hash_ids": (7, 8), "prompt_tokens": 33}
    for transfer, sent in (("all", [30, 30]), ("missing", [30, 10])):
        seen = run(request(0, **shared), request(1, 1000, **shared), settings={"prefix_cache": True}, transfer=transfer)
        assert [h.sent_bytes for r in seen.requests if (h := r.hand_over)] == sent
