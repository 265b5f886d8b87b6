"""The vision tower of a multimodal checkpoint, whose weights an engine loads beside the language model."""

from stageline.model.hf_fields import ConfigFields

_QWEN3 = frozenset({"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"})  # model_type of config.json
_SIZES = (
    "depth", "hidden_size", "intermediate_size", "temporal_patch_size", "patch_size", "num_position_embeddings",
    "spatial_merge_size", "out_hidden_size",
)  # fmt: skip
_CHANNELS = 3
_NORM, _LINEAR = 2, 1  # vectors of a norm with a bias; of a bias


def tower_params(outer: ConfigFields) -> int:
    """Parameters of the tower and of what joins it to the language model; 0: there is none, or its layout is unknown.

    Qwen3-VL-8B-Instruct: 576,388,336, with 8,190,735,360 of the language model 17,534,247,392 bytes, the total_size of
    its model.safetensors.index.json.
    """
    if outer.get("vision_config") is None or outer.text("model_type") not in _QWEN3:
        return 0
    f = outer.inner("vision_config")
    if not all(f.has(name) for name in _SIZES):
        return 0
    hidden, width = f.positive("hidden_size"), f.positive("intermediate_size")
    attention = 4 * hidden * hidden + 4 * hidden * _LINEAR
    mlp = 2 * hidden * width + (hidden + width) * _LINEAR
    layers = f.positive("depth") * (attention + mlp + 2 * hidden * _NORM)
    patches = _CHANNELS * f.positive("temporal_patch_size") * f.positive("patch_size") ** 2 * hidden + hidden * _LINEAR
    positions = f.positive("num_position_embeddings") * hidden
    merged, out = hidden * f.positive("spatial_merge_size") ** 2, f.positive("out_hidden_size")
    merger = (merged + _LINEAR) * merged + (merged + _LINEAR) * out
    deeper = len(f.integers("deepstack_visual_indexes"))  # mergers of inner layers, whose norm comes after merging
    return layers + patches + positions + merger + hidden * _NORM + deeper * (merger + merged * _NORM)
