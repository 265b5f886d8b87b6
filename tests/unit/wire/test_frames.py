"""The codec of frames: values survive the round trip, and no input breaks the decoder."""

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Item, Microbatch, Trail
from stageline.errors import ProtocolError
from stageline.sync.frames import Frame
from stageline.v1 import flow_pb2 as pb
from stageline.wire.frames import CAPPED_BYTES, CHUNK_BYTES, FRAME_COLUMNS, MODES, FrameDecoder, FrameEncoder, mode_of

COUNT = st.integers(0, 1 << 40)
OWNER = st.integers(-(1 << 31), 1 << 31)
BLOCKS = st.integers(-(1 << 20), 1 << 20) | st.just(0)
MICROBATCHES = st.builds(
    Microbatch,
    number=COUNT,
    totals=st.builds(BatchTotals, *[st.sampled_from([0, 0, 1, 70_000]) for _ in BatchTotals.__struct_fields__]),
    dispatch_ns=COUNT,
    work_since_ns=COUNT,
    empty_since_ns=COUNT,
    credit_since_ns=COUNT,
    releases=st.lists(OWNER, max_size=3).map(tuple),
    grants=st.lists(st.tuples(OWNER, BLOCKS, st.integers(-1, 1), BLOCKS), max_size=3).map(tuple),
    transfer_wait_ns=st.just(0) | COUNT,
)
TRAILS = st.builds(Trail, COUNT, COUNT, COUNT)
ITEMS = st.lists(st.builds(Item, arrival_ns=COUNT, trail=TRAILS, microbatch=MICROBATCHES), max_size=5).map(
    lambda items: sorted(items, key=lambda item: item.arrival_ns)
)
ONE = Item(7, Trail(5), Microbatch(0, BatchTotals(decode_sequences=2, decode_tokens=2, sampled=1), 1, 1, 1, 0))


def encoder(bytes_per_token=10, returns=False, mode="size"):
    return FrameEncoder(bytes_per_token, returns=returns, mode=mode)


def sent(request):
    """The frame as the receiver parses it."""
    return pb.FlowRequest.FromString(request.SerializeToString()).frame


@given(ITEMS, COUNT, st.lists(OWNER, max_size=4), COUNT)
def test_frames_survive_the_round_trip(items, promise_ns, releases, slip_ns):
    releases = [] if items else releases
    frame = Frame(items, promise_ns, not items, tuple(releases), slip_ns)
    *_, request = encoder().encode(frame)
    assert FrameDecoder("link 4").decode(sent(request)) == frame


def test_the_columns_stand_in_the_order_of_the_protocol():
    load = BatchTotals(10, 11, 12, 13, 14, 15, 16, 17, 18)
    items = [Item(6 + n, Trail(2, 19, 20), Microbatch(n, load, 3, 4, 5, 6)) for n in (1, 2)]
    (request,) = encoder().encode(Frame(items, 9))
    assert list(request.frame.value) == [
        1, 2, 7, 8, 2, 2, 19, 19, 20, 20, 3, 3, 4, 4, 5, 5, 6, 6,
        10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 18, 18,
    ]  # fmt: skip
    assert FRAME_COLUMNS == (
        "number", "arrival_ns", "prev_end_ns", "chunk_wait_ns", "pace_ns",
        "dispatch_ns", "work_since_ns", "empty_since_ns", "credit_since_ns",
        "decode_sequences", "decode_tokens", "decode_kv_tokens", "decode_pairs",
        "prefill_sequences", "prefill_tokens", "prefill_kv_tokens", "prefill_pairs", "sampled",
    )  # fmt: skip


def test_ledgers_that_do_not_change_cost_nothing():
    (request,) = encoder().encode(Frame([ONE], 9))
    assert not request.frame.HasField("kv")


def test_a_number_out_of_turn_is_refused():
    frames = encoder()
    frames.encode(Frame([], 1))
    (second,) = frames.encode(Frame([], 2))
    with pytest.raises(ProtocolError, match="link 3: frame 0: frame 1 came instead of 0"):
        FrameDecoder("link 3").decode(second.frame)


def two(**columns):
    """The values of two microbatches, all zero but for these columns."""
    columns = {"number": [0, 1], "arrival_ns": [8, 8]} | columns
    return [value for name in FRAME_COLUMNS for value in columns.get(name, [0, 0])]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": two(arrival_ns=[9, 8])}, "arrivals are not in order"),
        ({"value": two()[1:]}, "35 values are not a multiple of 18 columns"),
        ({"value": two(dispatch_ns=[1, 1 << 62])}, "dispatch_ns has a value out of range"),
        ({"value": two(decode_pairs=[0, 1 << 61])}, "decode_pairs has a value out of range"),
        ({"promise_ns": 1 << 63}, "promise_ns 9223372036854775808 is out of range"),
        ({"kv": {"release_count": [1, 1], "release_owner": [4]}}, "release_count does not add up"),
        ({"kv": {"grant_count": [1, 0], "grant_owner": [4]}}, "differ in length"),
        ({"kv": {"grant_count": [1], "grant_owner": [4], "grant_blocks": [1]}}, "grant_count does not add up"),
        ({"kv": {"grant_count": [1, 0], "grant_owner": [4], "grant_blocks": [1 << 62]}}, "column grant_blocks"),
        (
            {"kv": {"grant_count": [1, 0], "grant_owner": [4], "grant_blocks": [1], "grant_context_blocks": [1, 1]}},
            "differ in length",
        ),
        (
            {"kv": {"grant_count": [1], "grant_owner": [4], "grant_blocks": [1], "grant_context_blocks": [-(1 << 62)]}},
            "column grant_context_blocks",
        ),
        ({"last": True}, "last frame carries microbatches"),
        ({"value": [], "kv": {"grant_owner": [1]}}, "KV changes for microbatches but no microbatches"),
    ],
)
def test_a_malformed_frame_is_refused(change, reason):
    with pytest.raises(ProtocolError, match=reason):
        FrameDecoder("link 0").decode(pb.Frame(**{"value": two(), "promise_ns": 8} | change))


def test_nothing_follows_the_last_frame():
    frames, decoder = encoder(), FrameDecoder("link 0")
    decoder.decode(frames.encode(Frame([], 5, last=True))[0].frame)
    with pytest.raises(ProtocolError, match="after the last one"):
        decoder.decode(frames.encode(Frame([ONE], 9))[0].frame)


def test_arrivals_may_not_run_backwards_between_frames():
    frames, decoder = encoder(), FrameDecoder("link 0")
    decoder.decode(frames.encode(Frame([ONE], 7))[0].frame)
    early = Item(6, Trail(5), ONE.microbatch)
    with pytest.raises(ProtocolError, match="not in order"):
        decoder.decode(frames.encode(Frame([early], 7))[0].frame)


@given(st.binary(max_size=200))
def test_the_decoder_survives_any_bytes(data):
    try:
        frame = pb.Frame.FromString(data)
    except Exception:  # not a message at all: gRPC refuses it before the decoder sees it
        return
    try:
        received = FrameDecoder("link 0").decode(frame)
    except ProtocolError:
        return
    assert len(received.items) * len(FRAME_COLUMNS) == len(frame.value)


RANGES = {
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
}
VALUES = st.lists(st.integers(0, (1 << 64) - 1), min_size=16, max_size=16) | st.lists(st.integers(0, 9), max_size=48)
CHANGES = {
    field.name: st.lists(st.integers(*RANGES[field.cpp_type]), max_size=3) for field in pb.KvChanges.DESCRIPTOR.fields
}


@given(VALUES, st.none() | st.fixed_dictionaries({}, optional=CHANGES))
def test_the_decoder_survives_any_columns(values, changes):
    try:
        received = FrameDecoder("link 0").decode(pb.Frame(value=values, kv=changes))
    except ProtocolError:
        return
    assert all(item.arrival_ns >= 0 for item in received.items)


@pytest.mark.parametrize(
    ("mode", "bytes_per_token", "payload", "padding"),
    [
        ("size", 1000, 0, 0),
        ("capped", 1000, 2000, 0),
        ("capped", 1 << 20, CAPPED_BYTES, 0),
        ("full", 1 << 20, 0, 2),
        ("full", (1 << 20) + 8, 16, 2),
    ],
)
def test_payload_modes(mode, bytes_per_token, payload, padding):
    *ahead, request = encoder(bytes_per_token, mode=mode).encode(Frame([ONE], 9))
    assert len(request.frame.payload) == payload
    assert [len(message.padding) for message in ahead] == [CHUNK_BYTES] * padding
    assert request.frame.payload_bytes == 2 * bytes_per_token


def test_the_return_link_counts_sampled_tokens():
    (request,) = encoder(4, returns=True).encode(Frame([ONE], 9))
    assert request.frame.payload_bytes == 4


def test_modes_have_names():
    assert {mode_of(number) for number in MODES.values()} == set(MODES)
    assert mode_of(pb.PAYLOAD_MODE_UNSPECIFIED) == "size"
