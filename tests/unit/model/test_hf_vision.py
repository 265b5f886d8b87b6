"""Vision towers: parameters by index arithmetic, and the room that an engine gives them on its first stage."""

import json

import pytest

import stageline
from stageline.catalog.loader import Catalog
from stageline.model.hf import import_config
from stageline.model.spec import ModelSpec

VISION = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_position_embeddings": 2304, "patch_size": 16,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 4096,
    "deepstack_visual_indexes": [8, 16, 24],
}  # fmt: skip
TEXT = {  # Qwen3-VL-8B-Instruct
    "model_type": "qwen3_vl_text", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12_288, "vocab_size": 151_936,
    "max_position_embeddings": 262_144,
}  # fmt: skip


def imported(**vision: object) -> ModelSpec:
    outer = {"model_type": "qwen3_vl", "tie_word_embeddings": False, "text_config": TEXT}
    return import_config(json.dumps(outer | {"vision_config": VISION | vision}).encode(), "config.json", "m")


def test_tower_and_text_are_the_published_bytes() -> None:
    """total_size of Qwen3-VL-8B-Instruct's model.safetensors.index.json."""
    found = imported()
    assert found.tower_params == 576_388_336
    assert found.weight_bytes() + found.tower_bytes() == 17_534_247_392


@pytest.mark.parametrize(
    ("change", "params"),
    [
        # without the three mergers of inner layers: 4608 x 4608 + 4608 x 4096 with biases, and a norm of 4608, each
        ({"deepstack_visual_indexes": []}, 576_388_336 - 3 * (4609 * 4608 + 4609 * 4096 + 2 * 4608)),
        # a layer has 4 x 1152 x 1152 + 2 x 1152 x 4304 weights, 5 x 1152 + 4304 biases, and two norms
        ({"depth": 26}, 576_388_336 - (4 * 1152**2 + 2 * 1152 * 4304 + 5 * 1152 + 4304 + 4 * 1152)),
    ],
)
def test_parts_of_a_tower(change: dict[str, object], params: int) -> None:
    assert imported(**change).tower_params == params


def test_the_first_stage_holds_it_unless_it_is_not_loaded() -> None:
    spec = Catalog([]).model("qwen3.6-27b").spec
    both = stageline.plan_model("qwen3.6-27b", "h100-sxm", devices=2)
    alone = stageline.plan_model("qwen3.6-27b", "h100-sxm", devices=2, language_model_only=True)
    first, last = (b.weight_bytes - a.weight_bytes for a, b in zip(alone.plan.stages, both.plan.stages, strict=True))
    assert (first, last) == (spec.tower_bytes(), 0)
    ranks = [
        stageline.plan_model("qwen3.6-27b", "h100-sxm", tensor_parallel=2, tower_mode=mode).plan.stages[0].weight_bytes
        for mode in ("weights", "data")
    ]
    assert ranks[1] - ranks[0] == spec.tower_bytes()  # each of the two ranks holds it
    assert both.towers() == "vision tower: 921.46 MB on stage-0; --language-model-only leaves it out"
    assert alone.towers() == "vision tower: 921.46 MB, not loaded"
    assert (
        stageline.plan_model("kimi-k2.6", "h200")
        .towers()
        .endswith("not counted, an engine loads it on its first stage")
    )
    assert not stageline.plan_model("llama-3.1-8b", "h100-sxm").towers()
