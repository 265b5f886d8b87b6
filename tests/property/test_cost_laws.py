"""Laws of the cost model: monotone, additive over layers, bounded below, and equal in scalar and vectorised form."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.cost.entries import (
    Affine,
    Collective,
    CollectiveCost,
    CostEntry,
    Drafter,
    Experts,
    FullAttention,
    Gemm,
    Graphs,
    LayerGroup,
    LinearAttention,
    LmHead,
    Phase,
    Ring,
    Roofline,
    Spill,
)
from stageline.cost.service import compile_cost, min_service_ns
from stageline.cost.totals import BatchTotals
from stageline.cost.vectorised import compile_vectorised

FIELDS = BatchTotals.__struct_fields__
coefficient = st.floats(0, 1e4, allow_subnormal=False)
tiny = st.floats(0, 1, allow_subnormal=False)
count = st.integers(0, 3000)


WAYS = st.builds(CollectiveCost, latency_ns=coefficient, token_ns=coefficient)
COLLECTIVES = st.builds(Collective, ways=st.lists(WAYS, min_size=1, max_size=2).map(tuple))
RINGS = st.builds(
    Ring,
    kv_token_ns=tiny,
    query_token_ns=coefficient,
    steps_ns=coefficient,
    kv_threshold_tokens=coefficient,
    kv_share=st.floats(0, 2),
    decode_ns=coefficient,
)
SPILLS = st.builds(Spill, held_tokens=coefficient, token_ns=tiny)
PHASES = st.builds(
    Phase,
    fixed_ns=coefficient,
    kv_ns=tiny,
    unhidden=tiny,
    token_ns=tiny,
    sequence_ns=coefficient,
    span_ns=tiny,
    depth_tokens=tiny,
    spill=st.just(msgspec.UNSET) | SPILLS,
)


@st.composite
def groups(draw: st.DrawFn) -> LayerGroup:
    top_k = draw(st.integers(1, 16))
    experts = Experts(
        experts=top_k + draw(st.integers(0, 500)),
        top_k=top_k,
        token_ns=draw(coefficient),
        expert_ns=draw(coefficient),
        imbalance=tuple(sorted(draw(st.lists(st.floats(1, 20), max_size=4)))),
    )
    attention = FullAttention(
        decode_pair_ns=draw(tiny), prefill_pair_ns=draw(tiny), kv_ns=draw(tiny), window_tokens=draw(count)
    )
    if draw(st.booleans()):
        attention = msgspec.structs.replace(attention, ring=draw(RINGS))
    linear = LinearAttention(token_ns=draw(coefficient), sequence_ns=draw(coefficient))
    if draw(st.booleans()):
        attention = msgspec.structs.replace(attention, decode=draw(PHASES), prefill=draw(PHASES))
        linear = msgspec.structs.replace(linear, decode=draw(PHASES), prefill=draw(PHASES))
        experts = msgspec.structs.replace(experts, unhidden=draw(tiny))
    gemm = st.builds(Gemm, token_ns=coefficient, weights_ns=coefficient, unhidden=st.just(msgspec.UNSET) | tiny)
    return LayerGroup(
        layers=draw(st.integers(1, 90)),
        overhead_ns=draw(coefficient),
        gemms=tuple(draw(st.lists(gemm, max_size=3))),
        experts=draw(st.sampled_from([None, experts])),
        attention=draw(st.sampled_from([None, attention])),
        linear=draw(st.sampled_from([None, linear])),
        transfer_token_ns=draw(tiny),
        collectives=tuple(draw(st.lists(COLLECTIVES, max_size=2))),
    )


heads = st.none() | st.builds(LmHead, row_ns=coefficient, weights_ns=coefficient, overhead_ns=coefficient)
rooflines = st.builds(
    Roofline,
    groups=st.lists(groups(), max_size=3).map(tuple),
    head=heads,
    context_ranks=st.integers(1, 4),
    overlap=st.booleans(),
    floor_ns=coefficient,
    sequence_ns=coefficient,
    step_ns=coefficient,
)
GRAPHS = st.builds(
    Graphs,
    sizes=st.lists(st.integers(1, 600), max_size=5, unique=True).map(sorted).map(tuple),
    eager_ns=coefficient,
    decode_only=st.booleans(),
    exact=st.booleans(),
)
drafters = st.builds(
    Drafter,
    groups=st.lists(groups(), max_size=2).map(tuple),
    head=st.builds(LmHead, row_ns=coefficient, weights_ns=coefficient, overhead_ns=coefficient),
)
stepped = st.builds(
    msgspec.structs.replace,
    rooflines,
    ranks=st.sampled_from([msgspec.UNSET, 1, 2, 7]),
    graphs=st.just(msgspec.UNSET) | GRAPHS,
    host_hidden=st.booleans(),
    drafter=st.just(msgspec.UNSET) | drafters,
)
affines = st.builds(
    Affine,
    base_ns=st.integers(0, 10**6),
    token_ns=st.integers(0, 1000),
    kv_token_ns=st.integers(0, 100),
    sampled_ns=st.integers(0, 1000),
    imbalance_ns=st.integers(0, 10**6),
)
entries: st.SearchStrategy[CostEntry] = rooflines | affines
loads = st.builds(
    BatchTotals, **{name: st.integers(0, 10**7) if "pairs" in name or "kv" in name else count for name in FIELDS}
)
stepping = loads.map(  # a decode step has at least one token
    lambda t: msgspec.structs.replace(t, decode_tokens=max(t.decode_tokens, t.decode_sequences))
)
draws = st.integers(0, 2**64 - 1)


def without_rings(entry: CostEntry) -> CostEntry:
    """The entry without context parallelism."""
    if not isinstance(entry, Roofline):
        return entry
    bare = [
        msgspec.structs.replace(g, attention=g.attention and msgspec.structs.replace(g.attention, ring=None))
        for g in entry.groups
    ]
    return msgspec.structs.replace(entry, groups=tuple(bare))


def without_spans(entry: CostEntry) -> CostEntry:
    """The entry without times by mean span, which one more sequence shortens, or depth, which one more token does."""
    if not isinstance(entry, Roofline):
        return entry

    def bare(part: FullAttention | LinearAttention) -> FullAttention | LinearAttention:
        phases = {
            name: msgspec.structs.replace(phase, span_ns=0.0, depth_tokens=0.0)
            for name in ("decode", "prefill")
            if (phase := getattr(part, name))
        }
        return msgspec.structs.replace(part, **phases)

    groups = [
        msgspec.structs.replace(g, attention=g.attention and bare(g.attention), linear=g.linear and bare(g.linear))
        for g in entry.groups
    ]
    return msgspec.structs.replace(entry, groups=tuple(groups))


@settings(deadline=None)
@given(entries, loads, st.sampled_from(FIELDS), st.integers(1, 2000), draws)
def test_monotone_in_every_field(entry: CostEntry, totals: BatchTotals, field: str, more: int, draw: int) -> None:
    model = compile_cost(without_spans(without_rings(entry)))  # where rings switch, or spans shorten, time may fall
    grown = BatchTotals(**{name: getattr(totals, name) + (more if name == field else 0) for name in FIELDS})
    assert model.service_ns(grown, draw) >= model.service_ns(totals, draw) >= 1


@settings(deadline=None)
@given(entries | stepped, st.lists(st.tuples(stepping, draws), min_size=1, max_size=20))
def test_vectors_equal_scalars_to_the_bit(entry: CostEntry, cases: list[tuple[BatchTotals, int]]) -> None:
    columns = {name: np.array([getattr(totals, name) for totals, _ in cases], dtype=np.int64) for name in FIELDS}
    many = compile_vectorised(entry)(columns, np.array([draw for _, draw in cases], dtype=np.uint64))
    model = compile_cost(entry)
    assert many.dtype == np.int64
    assert many.tolist() == [model.service_ns(totals, draw) for totals, draw in cases]


@settings(deadline=None)
@given(entries | stepped, st.integers(70_000, 200_000))
def test_vectors_equal_scalars_past_the_table(entry: CostEntry, tokens: int) -> None:
    totals = BatchTotals(prefill_sequences=1, prefill_tokens=tokens, prefill_kv_tokens=tokens, prefill_pairs=tokens)
    columns = {name: np.array([getattr(totals, name)] * 2, dtype=np.int64) for name in FIELDS}
    assert compile_vectorised(entry)(columns, None).tolist() == [compile_cost(entry).service_ns(totals)] * 2


def test_halves_round_to_even_in_vectors_too() -> None:
    for overhead in (0.5, 1.5, 2.5, 3.5):
        entry = Roofline(groups=(LayerGroup(layers=1, overhead_ns=overhead),))
        one = {name: np.full(1, 2 * (name == "decode_tokens"), dtype=np.int64) for name in FIELDS}
        assert compile_vectorised(entry)(one, None).tolist() == [
            compile_cost(entry).service_ns(BatchTotals(decode_tokens=2))
        ]


def test_no_microbatches_at_all() -> None:
    empty = {name: np.zeros(0, dtype=np.int64) for name in FIELDS}
    assert compile_vectorised(Roofline(groups=()))(empty, None).tolist() == []


@settings(deadline=None)
@given(rooflines, loads)
def test_additive_over_layers(entry: Roofline, totals: BatchTotals) -> None:
    """A visit costs the sum of its groups of layers, up to the rounding of each; overheads per step count once."""
    once = {"overlap": False, "floor_ns": 0.0, "sequence_ns": 0.0, "step_ns": 0.0}
    entry = msgspec.structs.replace(entry, **once)
    ranks = entry.context_ranks
    parts = [Roofline(groups=(group,), context_ranks=ranks) for group in entry.groups] + [
        Roofline(groups=(), head=entry.head)
    ]
    separate = [compile_cost(part).service_ns(totals) for part in parts]
    assert abs(compile_cost(entry).service_ns(totals) - sum(separate)) <= len(parts) + 1


@settings(deadline=None)
@given(entries, loads, draws)
def test_min_service_is_below_every_microbatch(entry: CostEntry, totals: BatchTotals, draw: int) -> None:
    decode, prefill = totals.decode_sequences, totals.prefill_sequences
    if decode + prefill == 0:
        decode = 1
    real = BatchTotals(
        decode_sequences=decode,
        decode_tokens=decode,
        decode_kv_tokens=max(totals.decode_kv_tokens, decode),
        decode_pairs=max(totals.decode_pairs, decode),
        prefill_sequences=prefill,
        prefill_tokens=prefill,
        prefill_kv_tokens=max(totals.prefill_kv_tokens, prefill),
        prefill_pairs=max(totals.prefill_pairs, prefill),
        sampled=totals.sampled,
    )
    assert 1 <= min_service_ns(entry) <= compile_cost(entry).service_ns(real, draw)
