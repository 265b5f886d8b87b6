"""Kernel timings in CSV: what a layer calls, routed experts, ranks, and what is refused rather than dropped."""

import pytest

from stageline.cost.kernel_timings import LayerShape, make_profile
from stageline.cost.profile import Profile
from stageline.errors import BadInput

OPERATIONS = ("qkv_proj", "rotary_emb", "o_proj", "gate_up_proj", "act_fn", "down_proj", "layernorm")
PER_SEQUENCE = "layer,sequences,time_us\n" + "".join(f"{x},{n},{n}\n" for x in ("lm_head", "sampler") for n in (1, 2))
ATTENTION = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n" + "".join(
    f"{c},{h},{s},{k},{1 + c + h + s + k}\n"
    for c in (0, 16)
    for h in ((0, 16) if c else (0,))
    for s in (0, 1)
    for k in ((16, 32) if s else (0,))
    if c or s
)


def dense(*operations: str) -> str:
    """Every call takes 10 us for one token and 20 us for two."""
    rows = (f"{x},{n},{10 * n}\n" for x in (*operations, "embedding", "final_layernorm") for n in (1, 2))
    return "layer,tokens,time_us\n" + "".join(rows)


def made(text: str = dense(*OPERATIONS), **shape: object) -> Profile:
    found = LayerShape(**shape)  # type: ignore[arg-type]
    return make_profile(text, ATTENTION, PER_SEQUENCE, name="p", model="m", device="d", source="s", shape=found)


def test_a_grid_without_points_between_has_no_residual_of_them() -> None:
    """As the timings of an RTX 4090, whose contexts are all powers of two."""
    assert [r.of for r in made().residuals] == ["a layer without attention"]


def test_a_layer_calls_two_norms_and_everything_else_once() -> None:
    assert made().layer.ns == (80_000, 160_000)


def test_norms_of_queries_and_keys_count() -> None:
    assert made(dense(*OPERATIONS, "qk_norm"), qk_norm=True).layer.ns == (90_000, 180_000)
    with pytest.raises(BadInput, match="no timings of qk_norm"):
        made(qk_norm=True)


def test_no_row_is_dropped_in_silence() -> None:
    with pytest.raises(BadInput, match=r"column layer.*qk_norm.*expected act_fn"):
        made(dense(*OPERATIONS, "qk_norm"))


@pytest.mark.parametrize("ep", ["", "1,"])
def test_routed_experts_are_looked_up_at_the_experts_that_a_step_reads(ep: str) -> None:
    """Two of four experts: one token reads 2, two tokens 4 (1 - 0.5^2) = 3 on average."""
    rows = ((1, 2, 5.0), (2, 2, 6.0), (2, 4, 10.0))
    head = "ep,tokens,activated_experts,time_us\n" if ep else "tokens,activated_experts,time_us\n"
    text = head + "".join(f"{ep}{t},{e},{us}\n" for t, e, us in rows) + ("2,1,1,999\n" if ep else "")
    mine = ("qkv_proj", "rotary_emb", "o_proj", "layernorm")
    assert made(dense(*mine), experts=4, top_k=2, moe=text).layer.ns == (50_000 + 5_000, 100_000 + 8_000)


@pytest.mark.parametrize(
    ("shape", "says"), [({"moe": "x"}, "no routed experts"), ({"experts": 4}, "there is no moe.csv")]
)
def test_experts_and_their_file_belong_together(shape: dict[str, object], says: str) -> None:
    operations = OPERATIONS[:3] + OPERATIONS[-1:] if "experts" in shape else OPERATIONS
    with pytest.raises(BadInput, match=says):
        made(dense(*operations), **shape)


def test_ranks_reduce_after_attention_and_ffn() -> None:
    found = made(tensor_parallel=2, all_reduce_ns=lambda tokens: 1000.0 * tokens)
    assert found.tensor_parallel == 2
    assert found.layer.ns == (80_000 + 2_000, 160_000 + 4_000)
