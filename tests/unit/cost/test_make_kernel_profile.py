"""Shape profiles: exact at table points, right between them, the same on both service models, and what they refuse."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stageline.api.kernel_files import read_tables
from stageline.catalog.loader import Catalog
from stageline.cost.entries import Roofline
from stageline.cost.group import Group
from stageline.cost.kernel_profile import KernelProfile, beyond_tables, with_tables
from stageline.cost.make_kernel_profile import On, Tables, make_kernel_profile
from stageline.cost.roofline_entry import roofline_entry
from stageline.cost.service import compile_cost, min_service_ns
from stageline.cost.totals import BatchTotals
from stageline.cost.vectorised import compile_vectorised
from stageline.errors import UsageError
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions

SHELF = Catalog()
LLAMA, H100 = SHELF.model("llama-3.1-70b").spec, SHELF.device("h100-sxm").device


@pytest.fixture(scope="module")
def tables(shared_data: Path) -> Tables:
    pytest.importorskip("pyarrow")
    return read_tables(shared_data / "kernels" / "aiconfigurator" / "h100_sxm", "vllm")


@pytest.fixture(scope="module")
def profile(tables: Tables) -> KernelProfile:
    return make_kernel_profile(tables, On(LLAMA, H100, Group(tensor=8)), "p", "")


def entry_of(profile: KernelProfile, group: Group = Group(tensor=8)) -> Roofline:
    layers = range(len(LLAMA.layers))
    return with_tables(roofline_entry(LLAMA, layers, H100, group, head=True), profile, LLAMA, layers)


def latencies(tables: Tables, name: str, **wanted: int | str) -> dict[tuple[int, int], float]:
    """(batch, isl) or (m, step) -> ns of the rows that have all these values."""
    table = tables[name][0]
    first, second = ("m", "m") if name == "gemm_perf" else ("batch_size", "isl")
    second = "step" if name.startswith("generation") else second
    names = (first, second, "latency", *wanted)
    return {
        (int(a), int(b)): float(ms) * 1e6
        for a, b, ms, *values in table.rows(*names)
        if tuple(values) == tuple(wanted.values())
    }


@pytest.mark.parametrize("tokens", [1, 3, 64, 256, 2048, 8192])
def test_gemms_are_those_of_the_table(tables: Tables, profile: KernelProfile, tokens: int) -> None:
    """Llama-3.1-70B at TP8: qkv 1,280 x 8,192, o 8,192 x 1,024, up and gate 7,168 x 8,192, down 8,192 x 3,584."""
    measured = [
        latencies(tables, "gemm_perf", n=n, k=k, gemm_dtype="bfloat16").get((tokens, tokens))
        for n, k in ((8192, 1024), (7168, 8192))
    ]
    assert all(measured), "shapes of the table"
    at = dict(zip(profile.kinds[0].work[0].at, profile.kinds[0].work[0].ns, strict=True))
    assert at[tokens] > sum(x for x in measured if x)
    assert not any(note.startswith("o,") for note in profile.notes)
    assert any("1,280 x 8,192" in note for note in profile.notes), "what was interpolated is said"


@pytest.mark.parametrize(("batch", "context"), [(1, 128), (64, 4096), (256, 1024)])
def test_decode_attention_at_table_points(tables: Tables, profile: KernelProfile, batch: int, context: int) -> None:
    rows = latencies(
        tables, "generation_attention_perf", num_heads=8, num_key_value_heads=1, head_dim=128, window_size=0,
        kv_cache_dtype="bfloat16",
    )  # fmt: skip
    kv = batch * context
    totals = BatchTotals(decode_sequences=batch, decode_tokens=batch, decode_kv_tokens=kv, decode_pairs=kv)
    assert attention_ns(profile, totals) == pytest.approx(80 * rows[batch, context - 1], rel=1e-4)


@pytest.mark.parametrize(("batch", "chunk"), [(1, 16), (1, 8192), (16, 512)])
def test_prefill_attention_at_table_points(tables: Tables, profile: KernelProfile, batch: int, chunk: int) -> None:
    rows = latencies(
        tables, "context_attention_perf", num_heads=8, num_key_value_heads=1, head_dim=128, window_size=0,
        kv_cache_dtype="bfloat16",
    )  # fmt: skip
    assert attention_ns(profile, prefill(batch, chunk)) == pytest.approx(80 * rows[batch, chunk], rel=1e-4)


def prefill(batch: int, chunk: int, history: int = 0) -> BatchTotals:
    return BatchTotals(
        prefill_sequences=batch, prefill_tokens=batch * chunk, prefill_kv_tokens=batch * (chunk + history),
        prefill_pairs=batch * (chunk * history + chunk * (chunk + 1) // 2),
    )  # fmt: skip


def attention_ns(profile: KernelProfile, totals: BatchTotals) -> int:
    """The attention of all layers alone."""
    entry = entry_of(profile)
    groups = tuple(
        msgspec.structs.replace(g, work=msgspec.UNSET, overhead_ns=0.0, transfer_token_ns=0.0, collectives=())
        for g in entry.groups
    )
    return compile_cost(msgspec.structs.replace(entry, groups=groups, head=None)).service_ns(totals)


def test_history_costs_more_than_none(profile: KernelProfile) -> None:
    without, with_it = (attention_ns(profile, prefill(1, 2048, history)) for history in (0, 16384))
    assert with_it > 4 * without


def test_vectors_equal_scalars_and_nothing_is_faster_than_the_bound(profile: KernelProfile) -> None:
    entry = entry_of(profile)
    cases = [
        BatchTotals(decode_sequences=s, decode_tokens=s, decode_kv_tokens=s * c, decode_pairs=s * c, sampled=s)
        for s in (1, 2, 7, 300, 5000)
        for c in (1, 100, 5000, 200_000)
    ] + [prefill(b, t, h) for b in (1, 3, 40) for t in (1, 17, 3000, 40_000) for h in (0, 999)]
    columns = {f: np.array([getattr(x, f) for x in cases], dtype=np.int64) for f in BatchTotals.__struct_fields__}
    scalar = [compile_cost(entry).service_ns(x) for x in cases]
    assert compile_vectorised(entry)(columns, None).tolist() == scalar
    assert min(scalar) >= min_service_ns(entry) > 0


def test_a_plan_takes_the_profile(profile: KernelProfile) -> None:
    planned = make_plan(LLAMA, H100, PlanOptions(tensor_parallel=8, devices=8, profile=profile))
    plain = make_plan(LLAMA, H100, PlanOptions(tensor_parallel=8, devices=8))
    assert planned.plan.info["profile"] == "p"
    assert 0.5 < planned.timing.trip_ns / plain.timing.trip_ns < 1.5
    assert not math.isclose(planned.timing.trip_ns, plain.timing.trip_ns)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (PlanOptions(tensor_parallel=4, devices=4), "--tensor-parallel-size 8, not 4"),
        (PlanOptions(tensor_parallel=8, devices=16, context_parallel=2), "--context-parallel-size"),
        (PlanOptions(tensor_parallel=8, devices=8, sequence_parallel=True), "--sequence-parallel"),
    ],
)
def test_a_profile_is_for_one_group(profile: KernelProfile, options: PlanOptions, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_plan(LLAMA, H100, msgspec.structs.replace(options, profile=profile))


def test_what_lies_beyond_the_tables_is_said(profile: KernelProfile) -> None:
    assert beyond_tables(profile, 8192, 256, 4096) == []
    found = beyond_tables(profile, 8192, 256, 200_000)
    assert len(found) == 1
    assert "131,072 tokens of context in decode; up to 200,000" in found[0]


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3", "kimi-k3", "qwen3.6-27b"])
def test_every_kind_of_layer_finds_its_tables(tables: Tables, model: str) -> None:
    """MoE, MLA, KDA and gated-delta layers at TP8; times of a step are near those of the fitted constants."""
    spec, group = SHELF.model(model).spec, Group(tensor=8)
    made = make_kernel_profile(tables, On(spec, H100, group), "p", "")
    layers = [kind.layers[0] for kind in made.kinds]
    base = roofline_entry(spec, layers, H100, group)
    totals = BatchTotals(decode_sequences=64, decode_tokens=64, decode_kv_tokens=64 * 4096, decode_pairs=64 * 4096)
    ours, fitted = (compile_cost(e).service_ns(totals) for e in (with_tables(base, made, spec, layers), base))
    assert 0.5 < ours / fitted < 2.5
    assert any(kind.experts for kind in made.kinds) == (model != "qwen3.6-27b")
    assert any(kind.linear_decode for kind in made.kinds) == (model in ("kimi-k3", "qwen3.6-27b"))
    assert all(kind.collectives for kind in made.kinds)
