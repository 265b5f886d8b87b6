"""Redundant experts: copies of hot experts take memory and balance ranks."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.catalog.loader import Catalog
from stageline.cost.group import Group, layer_group_bytes
from stageline.cost.imbalance import imbalance_factors, relieve
from stageline.cost.roofline_entry import roofline_entry
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions

SHELF = Catalog()
DEEPSEEK, H800 = SHELF.model("deepseek-v3").spec, SHELF.device("h800").device
STEPS = (0, 1, 4, 16, 32)


@pytest.mark.parametrize(("experts", "top_k", "ranks", "alpha"), [(64, 4, 8, 1.1), (32, 2, 4, 1.01), (16, 1, 16, 1.2)])
def test_more_copies_never_load_the_most_loaded_rank_more(experts: int, top_k: int, ranks: int, alpha: float) -> None:
    tables = [imbalance_factors(experts, top_k, ranks, alpha, n) for n in STEPS]
    assert tables[0] == imbalance_factors(experts, top_k, ranks, alpha)
    for fewer, more in pairwise(tables):
        assert all(a >= b - 1e-12 for a, b in zip(fewer, more, strict=True))
    assert sum(tables[-1]) < 0.9 * sum(tables[0]) and tables[-1][0] >= 1


shares = st.lists(st.integers(0, 1000), min_size=4, max_size=24)


@settings(max_examples=200)
@given(shares, st.integers(1, 4), st.integers(0, 12))
def test_copies_move_load_and_lose_none(raw: list[int], ranks: int, copies: int) -> None:
    share = [float(x) for x in raw]
    held = [list(range(r, len(share), ranks)) for r in range(ranks)]
    loads = [sum(share[e] for e in experts) for experts in held]
    before = max(loads)
    most = relieve(share, held, loads, copies)
    assert most == max(loads) <= before + 1e-9
    assert sum(loads) == pytest.approx(sum(share))
    homes = [sum(e in experts for experts in held) for e in range(len(share))]
    assert all(n >= 1 for n in homes) and sum(homes) <= len(share) + copies
    assert all(len(set(experts)) == len(experts) for experts in held), "an expert is on a rank once"
    anew = [sum(share[e] / homes[e] for e in experts) for experts in held]
    assert loads == pytest.approx(anew), "a copy takes an even share"


def test_a_known_case() -> None:
    """Loads 9 + 1 and 1 + 1: a copy halves the hot expert, giving 5.5 and 6.5; no rank is left for a second copy."""
    share, held = [9.0, 1.0, 1.0, 1.0], [[0, 2], [1, 3]]
    loads = [10.0, 2.0]
    assert relieve(share, held, loads, 1) == 6.5
    assert (held, loads) == ([[0, 2], [1, 3, 0]], [5.5, 6.5])
    assert relieve([9.0, 1.0], [[0], [1]], [9.0, 1.0], 0) == 9.0


def test_copies_take_memory_and_are_read() -> None:
    none, some = (Group(attention_replicas=32, experts=True, redundant_experts=n) for n in (0, 32))
    layer = DEEPSEEK.layers[5]
    one = (layer_group_bytes(DEEPSEEK, layer, Group(attention_replicas=32, experts=True)), 3 * 7168 * 2048)
    assert layer_group_bytes(DEEPSEEK, layer, none) == one[0]
    grown = layer_group_bytes(DEEPSEEK, layer, some) - one[0]
    assert 32 * one[1] <= grown <= 32 * one[1] * 1.001  # 8 bits per weight and a scale per block
    assert layer_group_bytes(DEEPSEEK, DEEPSEEK.layers[0], some) == layer_group_bytes(
        DEEPSEEK, DEEPSEEK.layers[0], none
    )
    few, many = (compile_cost(roofline_entry(DEEPSEEK, [5], H800, group)) for group in (none, some))
    lone, full = (
        BatchTotals(decode_sequences=n, decode_tokens=n, decode_kv_tokens=n, decode_pairs=n) for n in (1, 4096)
    )
    one_token = pytest.approx(few.service_ns(lone), rel=1e-3)
    assert many.service_ns(lone) == one_token, "one token needs its top-k experts, copies or not"
    assert many.service_ns(full) >= few.service_ns(full)


def test_copies_pay_where_compute_binds() -> None:
    plain, copies = (
        compile_cost(
            roofline_entry(
                DEEPSEEK, [5], H800, Group(attention_replicas=32, experts=True, redundant_experts=n), alpha=1.1
            )
        )
        for n in (0, 32)
    )
    prompt = BatchTotals(
        prefill_sequences=1, prefill_tokens=65_536, prefill_kv_tokens=65_536, prefill_pairs=65_536 * 32_768
    )
    assert copies.service_ns(prompt) < plain.service_ns(prompt)


def test_plans_without_copies_are_what_they_were() -> None:
    asked = PlanOptions(devices=32, expert_parallel=32, context_tokens=4096)
    plain = make_plan(DEEPSEEK, H800, asked)
    assert make_plan(DEEPSEEK, H800, msgspec.structs.replace(asked, redundant_experts=0)).plan == plain.plan
    more = make_plan(DEEPSEEK, H800, msgspec.structs.replace(asked, redundant_experts=32))
    assert more.plan.stages[0].kv_budget_bytes < plain.plan.stages[0].kv_budget_bytes
    work = more.plan.stages[0].work
    assert work is not None and plain.plan.stages[0].work is not None
    assert work.experts == 288 and abs(work.step_bytes - plain.plan.stages[0].work.step_bytes) < 10**6
