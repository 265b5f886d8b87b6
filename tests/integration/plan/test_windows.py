"""Sliding-window layers keep no more of a sequence than their window, in the plan and in the engine's ledgers."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageline.catalog.loader import Catalog
from stageline.engine import inprocess
from stageline.engine.ledger import Ledger
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.errors import BadInput, KvOverdraw
from stageline.model.attention import Gqa
from stageline.model.spec import ModelSpec
from stageline.plan.build import make_plan
from stageline.plan.check import check_plan
from stageline.plan.explain import explain
from stageline.plan.options import PlanOptions
from stageline.plan.parse import parse_plan
from stageline.plan.schema import KvWindow, StagePlan
from stageline.report.run_writer import RunWriter
from stageline.testing import ListWorkload

SHELF = Catalog()
LLAMA, H100 = SHELF.model("llama-3.1-8b").spec, SHELF.device("h100-sxm").device
KV_BYTES, LAYERS = 2 * 8 * 128 * 2, 32  # of a token and layer


def windowed(*windows: int) -> ModelSpec:
    """Llama 3.1 8B whose layers have these windows in turn; 0 is full attention."""
    layer, layers = LLAMA.layers[0], []
    assert isinstance(layer.attention, Gqa)
    for i in range(LAYERS):
        attention = msgspec.structs.replace(layer.attention, window_tokens=windows[i % len(windows)])
        layers.append(msgspec.structs.replace(layer, attention=attention))
    return msgspec.structs.replace(LLAMA, layers=tuple(layers))


@pytest.mark.parametrize(("context", "kept"), [(100, 112), (1024, 1024), (8192, 1024), (131_072, 1024)])
def test_a_request_takes_the_window_or_its_context_in_whole_blocks(context: int, kept: int) -> None:
    found = make_plan(windowed(1024, 0), H100, PlanOptions(context_tokens=context))
    whole = -(-context // 16) * 16
    request = KV_BYTES * LAYERS // 2 * (kept + whole)
    stage = found.plan.stages[0]
    assert stage.windows == (KvWindow(most_blocks=64, block_bytes=KV_BYTES * 16 * LAYERS // 2),)
    assert stage.kv_block_bytes == KV_BYTES * 16 * LAYERS // 2
    assert found.requests == (stage.kv_budget_bytes // request,)
    assert stage.kv_bytes(-(-context // 16), 1) == request == found.memory.request_bytes(stage.layers)


def test_windows_of_several_lengths_are_kept_apart() -> None:
    stage = make_plan(windowed(100, 0, 1000, 100), H100, PlanOptions()).plan.stages[0]
    assert [(w.most_blocks, w.block_bytes) for w in stage.windows] == [
        (7, 16 * KV_BYTES * 16),
        (63, 8 * KV_BYTES * 16),
    ]
    found = make_plan(windowed(100, 1000), H100, PlanOptions())
    assert found.plan.stages[0].kv_block_bytes == 0
    assert any("each of its last 1,008 tokens" in line for line in explain(LLAMA, found))


def test_a_plan_without_windows_is_what_it_was() -> None:
    plain = make_plan(LLAMA, H100, PlanOptions()).plan
    assert b"kv_windows" not in plain.canonical()
    whole = make_plan(windowed(1024), H100, PlanOptions(whole_kv=True)).plan
    stages = [msgspec.structs.replace(p.stages[0], work=None) for p in (whole, plain)]
    assert stages[0] == stages[1], "it keeps the same, but reads less"
    longest = make_plan(windowed(LLAMA.context), H100, PlanOptions()).plan
    assert longest.stages == plain.stages, "a window as long as the longest context forgets nothing"


def test_a_windowed_plan_survives_its_file() -> None:
    plan = make_plan(windowed(1024, 0), H100, PlanOptions()).plan
    assert parse_plan(plan.canonical(), "plan") == plan
    stage = msgspec.structs.replace(plan.stages[0], kv_windows=(KvWindow(most_blocks=0, block_bytes=1),))
    with pytest.raises(BadInput, match=r"stages\[0\].kv_windows\[0\].most_blocks"):
        check_plan(msgspec.structs.replace(plan, stages=(stage,)), "plan")


def test_shorter_windows_never_hold_fewer_requests() -> None:
    counts = [make_plan(windowed(w, 0), H100, PlanOptions()).requests[0] for w in (64, 512, 4096, 8192, 100_000)]
    assert counts == sorted(counts, reverse=True) and counts[0] > 1.9 * counts[-1] and counts[-1] == counts[-2]


STAGE = StagePlan(
    name="s", layers=(0,), kv_block_bytes=3, state_bytes=7, kv_budget_bytes=200,
    kv_windows=(KvWindow(most_blocks=2, block_bytes=5), KvWindow(most_blocks=4, block_bytes=11)),
)  # fmt: skip


def held(blocks: int, states: int) -> int:
    """From the words of the rule."""
    return 3 * blocks + 7 * states + 5 * min(blocks, 2) + 11 * min(blocks, 4)


def test_windows_look_at_the_context_not_at_what_an_owner_holds_of_it() -> None:
    """A request that found 3 blocks cached and holds 1 has a context of 4; beside the blocks lie copies of one each."""
    ledger = Ledger(msgspec.structs.replace(STAGE, kv_budget_bytes=10**6))
    ledger.apply((), [(0, 1, 1, 4), (-1, 3, 0, 0), (-3, 0, 0, 1)])
    assert ledger.used_bytes == 3 * 4 + 7 + 5 * 2 + 11 * 4 + 5 + 11
    ledger.check()
    ledger.apply((-3,), [])
    assert ledger.used_bytes == 3 * 4 + 7 + 5 * 2 + 11 * 4


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12))
def test_the_ledger_counts_windows_however_blocks_come(steps: list[tuple[int, int]]) -> None:
    ledger, blocks = Ledger(msgspec.structs.replace(STAGE, kv_budget_bytes=10**6)), dict.fromkeys(range(3), 0)
    for owner, more in steps:
        ledger.apply((), [(owner, more, 0, more)])
        blocks[owner] += more
        assert ledger.used_bytes == sum(held(n, 0) for n in blocks.values())
        ledger.check()
    ledger.close({owner for owner, _ in steps})
    assert ledger.used_bytes == 0


def test_the_ledger_refuses_an_overdraw_by_windows_alone() -> None:
    ledger = Ledger(msgspec.structs.replace(STAGE, kv_budget_bytes=held(2, 1) + held(1, 0)))
    ledger.apply((), [(0, 2, 1, 2), (1, 1, 0, 1)])
    with pytest.raises(KvOverdraw, match="owner 1"):
        ledger.apply((), [(1, 1, 0, 1)])


def test_a_run_keeps_what_the_rule_says() -> None:
    """One request of 3,000 + 40 tokens: 190 blocks in full layers and 64 in layers with a window, under `reserve`."""
    plan = make_plan(windowed(1024, 0), H100, PlanOptions()).plan
    request = Request(index=0, arrival_ns=0, prompt_tokens=3000, output_tokens=40, max_output_tokens=40)
    with RunWriter(plan) as writer:
        for kv, blocks in (("reserve", 190), ("grow", 190)):
            workload = ListWorkload([request])
            totals = inprocess.run(plan, Scheduling(kv=kv), workload, seed=0, observer=writer, paranoid=True)
            assert totals.stages[0].kv_peak_bytes == KV_BYTES * 16 * LAYERS // 2 * (blocks + 64)
