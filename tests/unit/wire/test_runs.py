"""Requests, records and totals keep their values over the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageline.engine.causes import CAUSES
from stageline.engine.types import (
    Cancellation,
    HandOverRecord,
    LoadRecord,
    PrefixStats,
    Request,
    RequestRecord,
    RunTotals,
    SpeculationStats,
    StageRecord,
    TierStats,
)
from stageline.errors import ProtocolError
from stageline.v1 import router_pb2
from stageline.wire import runs

COUNT = st.integers(0, 1 << 40)
MAYBE = st.none() | COUNT


@given(
    st.lists(
        st.builds(
            Request,
            index=COUNT,
            arrival_ns=COUNT,
            prompt_tokens=COUNT,
            output_tokens=COUNT,
            max_output_tokens=COUNT,
            priority=st.integers(-3, 3),
            conversation=st.sampled_from(["", "a"]),
            hash_ids=st.lists(COUNT, max_size=3).map(tuple),
            output_hash_ids=st.lists(COUNT, max_size=3).map(tuple),
            model=st.sampled_from(["", "m"]),
        ),
        max_size=4,
    )
)
def test_requests(requests):
    rows = router_pb2.Rows.FromString(runs.rows_of(requests).SerializeToString())
    back = runs.requests_of(rows, 10)
    assert [r.index for r in back] == [r.index for r in requests]
    assert [(r.arrival_ns, r.priority, r.conversation, r.hash_ids, r.output_hash_ids) for r in back] == [
        (r.arrival_ns, r.priority, r.conversation, r.hash_ids, r.output_hash_ids) for r in requests
    ]
    assert [(r.prompt_tokens, r.output_tokens, r.max_output_tokens) for r in back] == [
        (r.prompt_tokens, r.output_tokens, r.max_output_tokens) for r in requests
    ]


def test_cancellations():
    events = [Cancellation(index=4, at_ns=9), Cancellation(index=0, at_ns=9)]
    assert runs.requests_of(runs.rows_of(events), 0) == events


def test_requests_without_numbers_are_counted():
    assert [r.index for r in runs.requests_of(router_pb2.Rows(arrival_ns=[5, 6]), 10)] == [10, 11]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"prompt_tokens": [1]}, "prompt_tokens has 1 values for 2"),
        ({"output_tokens": [1, -1]}, "output_tokens has a value out of range"),
        ({"hash_id": [5]}, "hash_count does not add up"),
    ],
)
def test_columns_that_do_not_fit_together(columns, reason):
    with pytest.raises(ProtocolError, match=reason):
        runs.requests_of(router_pb2.Rows(arrival_ns=[0, 1], **columns), 0)


@given(
    st.lists(
        st.builds(
            RequestRecord,
            index=COUNT,
            replica=MAYBE,
            arrival_ns=COUNT,
            admitted_ns=MAYBE,
            first_token_ns=MAYBE,
            last_token_ns=MAYBE,
            prompt_tokens=COUNT,
            output_tokens=COUNT,
            preemptions=COUNT,
            outcome=st.sampled_from(["finished", "refused", "incomplete"]),
            cached_tokens=MAYBE,
            hand_over=st.none() | st.builds(
                HandOverRecord, decode_replica=MAYBE, reserved_ns=MAYBE, start_ns=MAYBE, end_ns=MAYBE, landed_ns=MAYBE,
                sent_bytes=COUNT,
            ),
            load=st.none() | st.builds(
                LoadRecord, host_tokens=COUNT, store_tokens=COUNT, start_ns=COUNT, landed_ns=COUNT,
            ),
        ),
        max_size=4,
    )
)  # fmt: skip
def test_records(records):
    message = router_pb2.Records.FromString(runs.records_of(records).SerializeToString())
    assert runs.request_records(message) == records


def test_records_without_a_prefix_cache_or_a_hand_over_carry_no_columns_for_it():
    record = RequestRecord(
        index=0, replica=0, arrival_ns=1, admitted_ns=2, first_token_ns=3, last_token_ns=4, prompt_tokens=5,
        output_tokens=6, preemptions=0, outcome="finished",
    )  # fmt: skip
    assert not runs.records_of([record]).cached_tokens
    assert not runs.records_of([record]).HasField("hand_overs")
    assert not runs.records_of([record]).HasField("loads")


@pytest.mark.parametrize("binding", [None, 0, 3])
def test_totals(binding):
    prefix = PrefixStats(
        queried_blocks=9, hit_blocks=4, queried_tokens=140, hit_tokens=64, evictions=2, saved_prefill_ns=77
    )
    stage = StageRecord(
        replica=1, stage=2, window_ns=30, busy_ns=10, idle_ns=dict.fromkeys(CAUSES, 2), kv_peak_bytes=5,
        kv_budget_bytes=9, microbatches=4, visits=1,
    )  # fmt: skip
    totals = RunTotals(
        window_start_ns=3, window_end_ns=33, stages=(stage,), requests=7, microbatches=4, stage_visits=4,
        binding_stage=binding, prefix=(prefix, PrefixStats()),
        speculation=(SpeculationStats(steps=3, drafted_tokens=9, accepted_tokens=4), SpeculationStats()),
        tiers=tuple(
            TierStats(
                replica=replica, capacity_bytes=1, peak_bytes=2, hit_blocks=3, hit_tokens=4, read_bytes=5,
                written_bytes=6, written_blocks=7, evicted_blocks=8, dropped_blocks=9,
            )
            for replica in (0, None)
        ),
    )  # fmt: skip
    assert runs.run_totals(router_pb2.Ended.FromString(runs.ended_of(totals).SerializeToString())) == totals
