"""Measured costs: interpolation by hand, kernel files, profiles, and the vectorised twin."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.catalog.loader import Catalog
from stageline.cost.kernel_timings import attention_points, grid, make_profile, rising
from stageline.cost.measured import curve_ns
from stageline.cost.measured_entries import AttentionGrid, Curve, MeasuredCost
from stageline.cost.profile import check_profile, measured_entry
from stageline.cost.service import compile_cost, min_service_ns
from stageline.cost.totals import BatchTotals
from stageline.cost.vectorised import compile_vectorised
from stageline.errors import BadInput, UsageError
from stageline.plan.build import make_plan
from stageline.plan.check import check_plan
from stageline.plan.check_measured import check_measured
from stageline.plan.options import PlanOptions

SHELF = Catalog()
CURVE = Curve(at=(1, 2, 4), ns=(10.0, 20.0, 60.0))
# 100 per chunk token (0 without one), 7 per history token, 30 per sequence, 1 per KV token: linear, so exact in between
GRID = AttentionGrid(
    chunk=(0, 8),
    history=(0, 16),
    sequences=(0, 2),
    kv=(16, 32),
    ns=tuple(100.0 * c + 7.0 * h + 30.0 * s + k for c in (0, 8) for h in (0, 16) for s in (0, 2) for k in (16, 32)),
)
ENTRY = MeasuredCost(tokens=CURVE, attention=GRID, sampled=CURVE)


def test_lines_between_points() -> None:
    assert [curve_ns(CURVE, x) for x in (0, 1, 2, 3, 4, 6)] == [10, 10, 20, 40, 60, 100]


def test_a_mixed_microbatch_by_hand() -> None:
    load = BatchTotals(
        decode_sequences=1, decode_tokens=1, decode_kv_tokens=20, prefill_tokens=2, prefill_kv_tokens=6, sampled=1
    )
    assert compile_cost(ENTRY).service_ns(load) == 40 + (200 + 28 + 30 + 20) + 10


counts = st.integers(0, 5000)
loads = st.builds(
    BatchTotals,
    decode_sequences=st.integers(0, 300),
    decode_tokens=counts,
    decode_kv_tokens=st.integers(0, 10**7),
    prefill_tokens=counts,
    prefill_kv_tokens=st.integers(5000, 10**6),
    sampled=st.integers(0, 300),
)
axis = st.lists(st.integers(0, 4000), min_size=2, max_size=5, unique=True).map(lambda x: tuple(sorted(x)))


@st.composite
def entries(draw: st.DrawFn) -> MeasuredCost:
    axes = [draw(axis) for _ in range(4)]
    size = len(axes[0]) * len(axes[1]) * len(axes[2]) * len(axes[3])
    noise = draw(st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=size, max_size=size))
    cells = AttentionGrid(chunk=axes[0], history=axes[1], sequences=axes[2], kv=axes[3], ns=tuple(noise))
    at = draw(axis)
    curve = Curve(at=at, ns=rising(draw(st.floats(0, 1e6)) for _ in at))
    return MeasuredCost(tokens=curve, attention=cells, sampled=draw(st.sampled_from([None, curve])))


@settings(deadline=None, max_examples=60)
@given(entries(), st.lists(loads, min_size=1, max_size=10))
def test_vectors_equal_scalars_to_the_bit(entry: MeasuredCost, cases: list[BatchTotals]) -> None:
    columns = {f: np.array([getattr(x, f) for x in cases], dtype=np.int64) for f in BatchTotals.__struct_fields__}
    assert compile_vectorised(entry)(columns, None).tolist() == [compile_cost(entry).service_ns(x) for x in cases]


def test_the_plan_check_refuses_times_that_fall() -> None:
    check_measured(ENTRY, "$")
    falling = msgspec.structs.replace(
        ENTRY, attention=msgspec.structs.replace(GRID, ns=(9.0, *GRID.ns[1:8], *[1.0] * 8))
    )
    with pytest.raises(BadInput, match="falls along"):
        check_measured(falling, "$")
    with pytest.raises(BadInput, match="ascending"):
        check_measured(msgspec.structs.replace(ENTRY, tokens=Curve(at=(2, 1), ns=(1.0, 2.0))), "$")


def test_a_gap_in_the_grid_is_named() -> None:
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"
    with pytest.raises(BadInput, match="missing from the grid"):
        grid(attention_points(header + "16,0,1,16,3\n16,0,2,32,4\n", "a"), "a")
    with pytest.raises(BadInput, match=r"a:2"):
        attention_points(header + "16,0,1,16\n", "a")


def test_the_measured_kernels(shared_data: Path) -> None:
    """Errors at points off the grid of powers of two: median within 0.6 %, nine in ten within 10 %."""
    folder = shared_data / "measured" / "kernels_RTXPRO6000_Llama-3.1-8B_bf16_tp1"
    texts = [(folder / f"{name}.csv").read_text() for name in ("dense", "attention", "per_sequence")]
    profile = make_profile(*texts, name="p", model="llama-3.1-8b", device="rtx-pro-6000", source="kernels")
    between = profile.residuals[1]
    assert between.points > 10_000
    assert abs(between.median) < 0.01 and between.p90_absolute < 0.1
    spec, device = SHELF.model("llama-3.1-8b").spec, SHELF.device("rtx-pro-6000").device
    plan = make_plan(spec, device, PlanOptions(profile=profile, devices=2)).plan
    check_plan(plan, "plan")
    assert [isinstance(cost, MeasuredCost) and cost.sampled is not None for cost in plan.costs] == [False, True]
    whole, halves = (
        measured_entry(profile, range(32), 31),
        [measured_entry(profile, r, 31) for r in (range(16), range(16, 32))],
    )
    step = BatchTotals(decode_sequences=32, decode_tokens=32, decode_kv_tokens=32_000, decode_pairs=32_000, sampled=32)
    both = sum(compile_cost(entry).service_ns(step) for entry in halves)
    assert abs(compile_cost(whole).service_ns(step) - both) <= 2
    assert 0 < min_service_ns(whole) <= compile_cost(whole).service_ns(step)
    with pytest.raises(UsageError, match="measured with model"):
        check_profile(profile, SHELF.model("llama-3.1-70b").spec, "rtx-pro-6000", 1)
