"""What fills a device, and what limits requests at each context length."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageline.catalog.loader import Catalog
from stageline.cost.group import Group
from stageline.cost.roofline_entry import roofline_entry
from stageline.errors import DoesNotFit
from stageline.model.spec import ModelSpec
from stageline.plan.activations import layer_activation_bytes, logit_bytes
from stageline.plan.build import make_plan
from stageline.plan.capacity import by_context, capacity_at, crossover_tokens
from stageline.plan.memory import Memory
from stageline.plan.options import PlanOptions
from stageline.plan.report import plan_report
from stageline.plan.schema import StagePlan

SHELF = Catalog()
LLAMA, DEEPSEEK, KIMI = (SHELF.model(name).spec for name in ("llama-3.1-8b", "deepseek-v3", "kimi-k3"))
H100, WAFER = SHELF.device("h100-sxm").device, SHELF.device("wse-3t").device


def test_activations_of_a_known_model() -> None:
    """Llama 3.1 8B, 2,048 tokens in bf16: stream and input 2 x 4096, gate, up and product 3 x 14336 elements."""
    assert layer_activation_bytes(LLAMA, Group(), 2048) == 2048 * (2 * 4096 + 3 * 14336) * 2
    assert layer_activation_bytes(LLAMA, Group(tensor=4), 2048) == 2048 * (2 * 4096 + 3 * 14336 // 4) * 2
    spread = Group(tensor=4, sequence_parallel=True)
    assert layer_activation_bytes(LLAMA, spread, 2048) == 2048 * (2 * 4096 + 3 * 14336) * 2 // 4
    assert logit_bytes(LLAMA, Group(tensor=8), 64) == 64 * 128256 // 8 * 4
    # Kimi K3: after 93 layers the stream holds 1 + 8 vectors; 16 copies of a token, 3584 in and out, 3 x 3072 between.
    kimi = 9 * 7168 + 7168 + 16 * (2 * 3584 + 3 * 3072) + 3 * 2 * 3072
    assert layer_activation_bytes(KIMI, Group(), 100) == 100 * kimi * 2


@given(st.sampled_from([LLAMA, DEEPSEEK, KIMI]), st.integers(1, 10_000), st.sampled_from([1, 2, 4, 8]))
def test_activations_grow_with_tokens_and_shrink_with_ranks(spec: ModelSpec, tokens: int, ranks: int) -> None:
    def size(tokens: int = tokens, **group: int | bool) -> int:
        return layer_activation_bytes(spec, Group(**group), tokens)  # type: ignore[arg-type]

    assert size(tokens + 1) > size()
    assert size(tensor=ranks, sequence_parallel=True) <= size(tensor=ranks) <= size()
    assert size(context=ranks) <= size() and size(attention_replicas=ranks, experts=True) <= size() + spec.hidden * 200
    assert size(1000 * ranks, context=ranks) == size(1000)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_sequence_parallelism_moves_the_same_bytes_and_holds_fewer(ranks: int) -> None:
    """A reduce-scatter and an all-gather are the two halves of a ring all-reduce: the same time, less memory."""
    plain, split = (
        roofline_entry(LLAMA, [0], H100, Group(tensor=ranks, sequence_parallel=s)).groups[0].collectives
        for s in (False, True)
    )
    assert (len(plain), len(split)) == (2, 4)
    for way in range(len(plain[0].ways)):
        assert sum(c.ways[way].token_ns for c in split) == pytest.approx(sum(c.ways[way].token_ns for c in plain))
    whole, part = (layer_activation_bytes(LLAMA, Group(tensor=ranks, sequence_parallel=s), 4096) for s in (False, True))
    assert part < whole and whole - part == 4096 * 2 * 4096 * 2 * (ranks - 1) // ranks


@pytest.mark.parametrize("activations", ["reserve", "kv"])
def test_the_parts_are_the_device(activations: str) -> None:
    options = PlanOptions(tensor_parallel=2, activations=activations)  # type: ignore[arg-type]
    found = make_plan(LLAMA, H100, options)
    device = plan_report(found).stages[0].device
    parts = device.weight_bytes + device.kv_bytes + device.reserve_bytes
    assert H100.memory_bytes - 2 <= parts <= H100.memory_bytes + 2
    assert device.activation_bytes == 2048 * (2 * 4096 + 3 * 14336 // 2) * 2
    kept = device.activation_bytes + H100.engine_bytes(2) if activations == "kv" else 0
    assert device.reserve_bytes == H100.memory_bytes // 10 + kept


def test_activations_in_the_ledger_are_taken_from_it_and_nothing_else_changes() -> None:
    plain = make_plan(LLAMA, H100, PlanOptions()).plan.stages[0]
    stage = make_plan(LLAMA, H100, PlanOptions(activations="kv")).plan.stages[0]
    less = plain.kv_budget_bytes - stage.kv_budget_bytes
    assert less == 2048 * (2 * 4096 + 3 * 14336) * 2 + H100.runtime_bytes
    assert msgspec.structs.replace(stage, kv_budget_bytes=plain.kv_budget_bytes) == plain
    with pytest.raises(DoesNotFit):
        make_plan(LLAMA, H100, PlanOptions(devices=1, activations="kv", batched_tokens=1_000_000))


def kimi_stages() -> tuple[tuple[StagePlan, ...], Memory]:
    """A wafer with two KDA layers and one with an MLA layer, embedding and head elsewhere."""
    memory = Memory(KIMI, WAFER, PlanOptions())
    stages = []
    for name, layers in (("linear", (4, 5)), ("full", (3,))):
        weights = memory.weight_bytes(layers)
        stages.append(
            StagePlan(
                name=name,
                layers=layers,
                kv_budget_bytes=memory.capacity_bytes - weights,
                kv_block_bytes=memory.block_bytes(layers),
                state_bytes=memory.state_bytes(layers),
            )
        )
    return tuple(stages), memory


def test_state_binds_kimi_below_62k_and_kv_above() -> None:
    """10.02 GB hold 769 states of two layers; 27.43 GB hold 769 requests of about 62K tokens in fp8."""
    stages, memory = kimi_stages()
    below, above = capacity_at(stages, memory, 8192), capacity_at(stages, memory, 131_072)
    assert (below.requests, below.stage, below.binds) == (769, "linear", "state")
    assert (above.requests, above.stage, above.binds) == (363, "full", "kv")
    change = crossover_tokens(stages, memory, 1 << 20)
    assert change is not None and 61_000 < change < 63_000
    assert (
        capacity_at(stages, memory, change).binds == "kv" and capacity_at(stages, memory, change - 16).binds == "state"
    )


def test_one_thing_that_binds_throughout_has_no_crossover() -> None:
    found = make_plan(LLAMA, H100, PlanOptions())
    assert crossover_tokens(found.plan.stages, found.memory, 131_072) is None
    rows = by_context(found.plan.stages, found.memory, 131_072)
    assert [row.context_tokens for row in rows] == [1 << n for n in range(10, 18)]
    counts = [row.requests for row in rows]
    assert counts == sorted(counts, reverse=True) and {row.binds for row in rows} == {"kv"}
    assert rows[3].requests == found.requests[0]
    full = msgspec.structs.replace(found.plan.stages[0], kv_budget_bytes=5)
    assert capacity_at((full,), found.memory, 1024).binds == "weights"


@pytest.mark.parametrize("activations", ["reserve", "static", "kv", "free"])
def test_what_engines_mean_by_their_share_of_memory(activations: str) -> None:
    """One H100 at 0.8: runtime and activations outside of the share, inside, or before the share is taken."""
    options = PlanOptions(memory_share=0.8, activations=activations)  # type: ignore[arg-type]
    stage = make_plan(LLAMA, H100, options).plan.stages[0]
    weights, runtime = LLAMA.weight_bytes(), H100.runtime_bytes
    work = 2048 * (2 * 4096 + 3 * 14336) * 2
    expected = {
        "reserve": 0.8 * H100.memory_bytes - weights,
        "static": 0.8 * H100.memory_bytes - weights - runtime,
        "kv": 0.8 * H100.memory_bytes - weights - runtime - work,
        "free": 0.8 * (H100.memory_bytes - weights - runtime - work),
    }
    assert stage.kv_budget_bytes == pytest.approx(expected[activations], abs=2)


def test_a_share_of_the_free_memory_must_hold_the_planned_requests() -> None:
    """TensorRT-LLM's share is of what weights leave: half of it holds half of the requests."""
    whole, half = (
        make_plan(LLAMA, H100, PlanOptions(memory_share=share, activations="free")).requests[0] for share in (1.0, 0.5)
    )
    assert whole // 2 - 1 <= half <= whole // 2
    with pytest.raises(DoesNotFit):
        make_plan(LLAMA, H100, PlanOptions(memory_share=0.5, activations="free", devices=1, concurrency=half + 1))
    found = make_plan(LLAMA, H100, PlanOptions(memory_share=0.5, activations="free", devices=1, concurrency=half))
    assert found.requests[0] == half


def test_a_sampler_works_on_whole_rows_of_every_rank() -> None:
    assert logit_bytes(LLAMA, Group(tensor=8), 256, 28) == 256 * 128256 * 28
    assert logit_bytes(LLAMA, Group(tensor=8), 256) == 256 * 128256 // 8 * 4
