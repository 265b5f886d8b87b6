"""Ranks of data-parallel attention that step together, CUDA graphs, and the host's time: values by hand."""

import msgspec
import pytest

from stageline.cost.entries import Experts, FullAttention, Gemm, Graphs, LayerGroup, LmHead, Roofline
from stageline.cost.service import compile_cost, min_service_ns
from stageline.cost.together import in_step
from stageline.cost.totals import BatchTotals

GEMM = LayerGroup(layers=1, overhead_ns=0.0, gemms=(Gemm(token_ns=100.0, weights_ns=0.0),))
GRAPHS = Graphs(sizes=(1, 2, 4, 8), eager_ns=5_000.0)


def decode(sequences: int, tokens: int = 1) -> BatchTotals:
    """A decode step over 10 tokens of KV each."""
    n = sequences * tokens
    return BatchTotals(
        decode_sequences=sequences, decode_tokens=n, decode_kv_tokens=10 * n, decode_pairs=10 * n, sampled=n
    )


def prefill(sequences: int, tokens: int) -> BatchTotals:
    n = sequences * tokens
    return BatchTotals(prefill_sequences=sequences, prefill_tokens=n, prefill_kv_tokens=n, prefill_pairs=n, sampled=1)


def time_of(totals: BatchTotals, **fields: object) -> int:
    entry = msgspec.structs.replace(Roofline(groups=(GEMM,)), **fields)
    return compile_cost(entry).service_ns(totals)


@pytest.mark.parametrize(("ranks", "sequences", "counted"), [(4, 4, 4), (4, 5, 8), (4, 1, 4), (3, 7, 9), (1, 7, 7)])
def test_the_fullest_rank_sets_the_step(ranks: int, sequences: int, counted: int) -> None:
    assert in_step(decode(sequences), ranks) == decode(counted)
    assert time_of(decode(sequences), ranks=ranks) == 100 * counted


def test_one_prompt_keeps_one_rank_busy_and_the_others_wait() -> None:
    """1,000 tokens on one of 8 ranks take as long as 8,000 on all of them."""
    assert time_of(prefill(1, 1000), ranks=8) == time_of(prefill(8, 1000), ranks=8) == 100 * 8000


def test_decode_and_prefill_are_spread_each_for_itself() -> None:
    both = BatchTotals(decode_sequences=3, decode_tokens=3, prefill_sequences=1, prefill_tokens=50)
    found = in_step(both, 2)
    assert (found.decode_tokens, found.prefill_tokens) == (4, 100)


def test_dummies_choose_no_experts() -> None:
    experts = Experts(experts=4, top_k=4, token_ns=7.0, expert_ns=0.0)
    entry = Roofline(groups=(LayerGroup(layers=1, overhead_ns=0.0, experts=experts),), ranks=8, graphs=GRAPHS)
    assert compile_cost(entry).service_ns(decode(3)) == 21


@pytest.mark.parametrize(
    ("sequences", "ns"), [(1, 100), (3, 400), (8, 800), (9, 5_000), (60, 6_000)]
)  # padded up to 8; above that eager: 5 us or what the devices take
def test_a_step_is_padded_to_a_captured_size_or_runs_eager(sequences: int, ns: int) -> None:
    assert time_of(decode(sequences), graphs=GRAPHS) == ns


def test_padding_has_no_kv_and_no_rows() -> None:
    attention = FullAttention(decode_pair_ns=0.0, prefill_pair_ns=0.0, kv_ns=1.0)
    group = LayerGroup(layers=1, overhead_ns=0.0, attention=attention)
    entry = Roofline(groups=(group,), head=LmHead(row_ns=1.0, weights_ns=0.0), graphs=GRAPHS)
    assert compile_cost(entry).service_ns(decode(3)) == 30 + 3


def test_each_rank_pads_its_own_tokens() -> None:
    """5 sequences on 2 ranks: 3 on the fullest, padded to 4."""
    assert time_of(decode(5), ranks=2, graphs=GRAPHS) == 100 * 8


def test_engines_that_capture_decode_steps_run_prefill_eager() -> None:
    graphs = msgspec.structs.replace(GRAPHS, decode_only=True)
    assert time_of(prefill(1, 4), graphs=graphs) == 5_000
    assert time_of(prefill(1, 4), graphs=GRAPHS) == 400


def test_engines_that_do_not_pad_run_other_sizes_eager() -> None:
    graphs = msgspec.structs.replace(GRAPHS, exact=True)
    assert [time_of(decode(n), graphs=graphs) for n in (2, 3, 4)] == [200, 5_000, 400]


def test_without_graphs_every_step_launches_its_kernels() -> None:
    graphs = Graphs(sizes=(), eager_ns=5_000.0)
    assert time_of(decode(1), graphs=graphs) == 5_000
    assert min_service_ns(Roofline(groups=(GEMM,), graphs=graphs)) == 5_000


def test_a_lower_bound_does_not_count_on_launches_that_a_graph_saves() -> None:
    graphs = Graphs(sizes=(2,), eager_ns=5_000.0, exact=True)
    entry = Roofline(groups=(GEMM,), graphs=graphs)
    assert min_service_ns(entry) <= compile_cost(entry).service_ns(decode(2)) == 200


@pytest.mark.parametrize(("sequences", "hidden", "ns"), [(4, False, 604), (4, True, 400), (4, None, 604)])
def test_asynchronous_scheduling_hides_the_host(sequences: int, hidden: bool | None, ns: int) -> None:
    host = {"sequence_ns": 50.0, "step_ns": 4.0, "host_hidden": msgspec.UNSET if hidden is None else hidden}
    assert time_of(decode(sequences), **host) == ns


def test_a_host_that_is_slower_than_the_devices_sets_the_step() -> None:
    assert time_of(decode(4), sequence_ns=500.0, host_hidden=True) == 2_000


def test_each_ranks_host_has_its_own_sequences() -> None:
    assert time_of(decode(5), ranks=2, sequence_ns=1_000.0) == 600 + 3_000
