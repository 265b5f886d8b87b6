"""Quantised checkpoints: every method's format, scales and zero points included, and nothing falls back to BF16."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stageline.api.lookup import find_model
from stageline.catalog.loader import Catalog
from stageline.errors import BadInput
from stageline.model.formats import WeightFormats, format_named
from stageline.model.hf import import_config
from stageline.model.hf_modules import Patterns
from stageline.model.spec import ModelSpec

QWEN = {  # Qwen2.5-7B-Instruct
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "use_sliding_window": False,
}  # fmt: skip
MOE = QWEN | {
    "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 2560,
}  # fmt: skip
LINEAR = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18_944)
REST = 2 * (2 * 152_064 * 3584 + 28 * (3584 + 1024 + 2 * 3584) + 3584)  # bytes: embedding, head, biases, norms


def imported(config: dict[str, Any], section: object = None, side: object = None) -> ModelSpec:
    document = config if section is None else config | {"quantization_config": section}
    beside = json.dumps(side).encode() if side is not None else None
    return import_config(json.dumps(document).encode(), "config.json", "x", beside)


def weights(bits: int, size: int | None, **more: object) -> dict[str, object]:
    return {"num_bits": bits, "group_size": size, "symmetric": True, **more}


def tensors_config(weights: dict[str, object], activations: object = None, **more: object) -> dict[str, object]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **more}


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "static_groups": False}
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4"}
EIGHT = {"num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("section", "bits"),
    [
        # 4 bits, and per group of 128 a 16-bit scale and a 4-bit zero point: 5.57 GB, as the published AWQ checkpoint.
        (AWQ, 4 + Fraction(16 + 4, 128)),
        (AWQ | {"zero_point": False}, 4 + Fraction(16, 128)),
        (GPTQ, 4 + Fraction(16 + 4, 128)),  # symmetric checkpoints store their zero points too
        (GPTQ | {"bits": 8, "group_size": 32}, 8 + Fraction(16 + 8, 32)),
        (GPTQ | {"bits": 3, "group_size": -1}, 3),
        (GPTQ | {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"}, 4 + Fraction(20, 128)),
        (NF4, 4 + Fraction(32, 64)),  # a fp32 scale per 64
        (NF4 | {"bnb_4bit_use_double_quant": True}, 4 + Fraction(8, 64) + Fraction(32, 64 * 256)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 6.0}, 8),
        ({"quant_method": "fp8", "activation_scheme": "static"}, 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + Fraction(32, 128 * 128)),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, 8),
        (tensors_config(weights(8, None, type="float", strategy="channel"), EIGHT), 8),
        (tensors_config(weights(8, None, type="float", block_structure=[128, 128]), EIGHT), 8 + Fraction(1, 512)),
        (tensors_config(weights(8, None, type="int"), {"num_bits": 8, "type": "int"}), 8),
        (tensors_config(weights(4, 128, type="int")), 4 + Fraction(16, 128)),
        (tensors_config(weights(4, 64, type="int", symmetric=False)), 4 + Fraction(20, 64)),
        (tensors_config(weights(4, 16, type="float"), {"num_bits": 4}), 4 + Fraction(8, 16)),
        (tensors_config(weights(4, 32, type="float")), 4 + Fraction(8, 32)),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, 8),
        ({"quant_algo": "NVFP4", "exclude_modules": ["lm_head"], "group_size": 16}, 4 + Fraction(8, 16)),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 64, "ignore": ["lm_head"]}, 4.25),
    ],
    ids=lambda value: str(value.get("quant_method", "modelopt")) if isinstance(value, dict) else str(value),
)
def test_bits_per_weight_include_scales_and_zero_points(section: dict[str, object], bits: Fraction | float) -> None:
    assert imported(QWEN, section).weight_bytes() == pytest.approx(REST + LINEAR * Fraction(bits) / 8, abs=28 * 4)


def test_awq_gigabytes() -> None:
    """The published Qwen2.5-7B-Instruct-AWQ has 5.57 GB."""
    assert round(imported(QWEN, AWQ).weight_bytes() / 1e9, 2) == 5.57


QUARK = {"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"quant_method": "quark"}, "known: auto-round, awq"),
        ({"quant_method": "hqq"}, "its weights are not BF16"),
        ({}, None),
        ({"bits": 4}, "quant_method"),
        (AWQ | {"bits": 5}, "int5-g128-zp"),
        (NF4 | {"load_in_8bit": True}, "either load_in_4bit or load_in_8bit"),
        (NF4 | {"bnb_4bit_quant_type": "af4"}, "known: nf4, fp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP2"}, "MIXED_PRECISION with quantized_layers"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
        (tensors_config(weights(4, 64, type="float")), "float 4 bits, groups of 64"),
        (tensors_config(weights(8, None, type="float"), kv_cache_scheme={"num_bits": 4, "type": "float"}), "KV cache"),
        (tensors_config(weights(4, 128, type="int"), sparsity_config={"format": "sparse-24-bitmask"}), "sparse"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "128 x 128"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}, "known: FP8"),
        (tensors_config(weights(8, None, type="float")) | {"ignore": ["re:("]}, "regular expression"),
        (GPTQ | {"dynamic": {"+:.*up_proj": {"bits": 7}}}, "int7-g128-zp"),
        (QUARK | {"layer_quant_config": {"*k_proj": {}}}, "formats by layer"),
        (QUARK | {"global_quant_config": {"weight": {"dtype": "fp6"}}}, "fp6, groups of 0"),
    ],
)
def test_what_is_not_modelled_is_refused(section: dict[str, object], named: str | None) -> None:
    if named is None:
        assert imported(QWEN, section) == imported(QWEN)
        return
    with pytest.raises(BadInput) as error:
        imported(QWEN, section)
    assert named in str(error.value)


def formats(section: object, side: object = None, layer: int = 3, config: dict[str, Any] = MOE) -> WeightFormats:
    return imported(config, section, side).layers[layer].formats


def test_ignored_modules_keep_their_type() -> None:
    every = {"quant_method": "fp8"}
    assert formats(every).routed_experts == formats(every).attention == "fp8"
    skip = every | {"modules_to_not_convert": ["model.layers.*.self_attn", "mlp.gate", "lm_head"]}
    assert (formats(skip).routed_experts, formats(skip).attention) == ("fp8", "bf16")
    one = every | {"modules_to_not_convert": ["model.layers.3.mlp.experts"]}
    assert (formats(one).routed_experts, formats(one, layer=4).routed_experts) == ("bf16", "fp8")
    ignore = tensors_config(weights(4, 128, type="int")) | {"ignore": ["re:.*self_attn.*", "re:.*mlp.gate$", "lm_head"]}
    assert (formats(ignore).routed_experts, formats(ignore).attention) == ("int4-g128", "bf16")


def test_rules_for_some_modules() -> None:
    change = GPTQ | {"dynamic": {"-:.*self_attn.*": {}, "+:.*experts.*": {"bits": 8}}}
    assert (formats(change).attention, formats(change).routed_experts) == ("bf16", "int8-g128-zp")
    groups = tensors_config(weights(4, 128, type="int"))
    attention = {"targets": ["re:.*self_attn.*"], "weights": weights(8, None, type="float"), "input_activations": EIGHT}
    groups["config_groups"] = {"a": attention} | groups["config_groups"]  # type: ignore[operator]
    assert (formats(groups).attention, formats(groups).routed_experts) == ("fp8", "int4-g128")
    assert formats({"quant_method": "mxfp4"}).attention == "bf16"
    assert formats({"quant_method": "mxfp4"}).routed_experts == "mxfp4-openai"  # gpt-oss, which has its own kernels


STATIC = EIGHT | {"dynamic": False}


@pytest.mark.parametrize(
    ("section", "experts"),
    [
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8-static"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8-static"),
        (tensors_config(weights(8, None, type="float"), STATIC), "fp8-static"),
        (tensors_config(weights(8, None, type="float"), EIGHT | {"dynamic": True}), "fp8"),
    ],
)
def test_static_scales_of_activations_count_for_experts_alone(section: dict[str, object], experts: str) -> None:
    found = formats(section)
    assert (found.routed_experts, found.attention) == (experts, "fp8")


SIDE = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}


def test_the_file_beside_the_config_counts() -> None:
    spec = imported(QWEN, side=SIDE)
    assert spec.layers[0].formats.ffn == "fp8" and spec.formats.head == "bf16" and spec.kv_type == "bf16"
    cached = {"quantization": SIDE["quantization"] | {"kv_cache_quant_algo": "FP8"}}  # type: ignore[operator]
    assert imported(QWEN, side=cached).kv_type == "fp8"
    both = imported(QWEN, AWQ, {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}})
    assert both.kv_type == "fp8" and both.layers[0].formats.ffn == "int4-g128-zp"
    wild = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "*self_attn*", "model.layers.2*"]}}
    found = imported(QWEN, side=wild)
    assert [x.formats.ffn for x in found.layers[1:4]] == ["nvfp4", "bf16", "nvfp4"]
    assert {x.formats.attention for x in found.layers} == {"bf16"}
    with pytest.raises(BadInput, match=r"hf_quant_config\.json: \$\.quantization"):
        imported(QWEN, side={"producer": {}})


def test_mixed_precision_names_modules_and_what_is_inside() -> None:
    layers = {f"model.layers.{i}.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16} for i in range(28)}
    layers |= {f"model.layers.{i}.self_attn.o_proj": {"quant_algo": "FP8"} for i in range(14)}
    side = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}}
    assert formats(None, side).routed_experts == "nvfp4-w4a16"
    assert [formats(None, side, i).attention for i in (13, 14)] == ["fp8", "bf16"]


def test_real_files_beside_configs(shared_data: Path) -> None:
    folder = shared_data / "configs"
    llama = find_model(str(folder / "nvidia--Llama-3.1-70B-Instruct-FP8" / "config.json"), Catalog())
    assert llama.kv_type == "fp8" and round(llama.weight_bytes() / 1e9, 2) == 72.66
    qwen = find_model(str(folder / "nvidia--Qwen3.6-35B-A3B-NVFP4"), Catalog())
    assert qwen.kv_type == "fp8" and qwen.formats.head == "nvfp4-w4a16"
    delta, full = qwen.layers[0].formats, qwen.layers[3].formats
    assert (delta.attention, full.attention) == ("fp8", "fp8")
    assert {(x.formats.routed_experts, x.formats.shared_experts) for x in qwen.layers} == {("nvfp4-w4a16",) * 2}
    kimi, plain = (find_model(str(folder / f"nvidia--Kimi-K2.6-NVFP4{end}"), Catalog()) for end in ("", ".json"))
    assert kimi.layers == plain.layers and kimi.kv_type == plain.kv_type == "fp8"


def test_names_of_formats() -> None:
    assert format_named("int4-g64-zp", "x") == format_named("int4-g64-zp", "y")
    assert format_named("int4-g32", "x").bits == format_named("int4", "x").bits
    for wrong in ("int5-g128", "int4-g0", "int4-g", "fp9"):
        with pytest.raises(BadInput, match="not a weight format"):
            format_named(wrong, "x")
    with pytest.raises(BadInput, match=r"did you mean nvfp4\?"):
        format_named("nvfp", "x")


def test_patterns() -> None:
    found = Patterns(("model.layers.1*", "mlp.gate", "re:^model.lm", "[ab].x"), "x")
    assert found.match("layers.1.mlp.up_proj") and found.match("layers.10.mlp.up_proj")
    assert found.match("layers.2.mlp.gate") and not found.match("layers.2.mlp.gate_proj")
    assert found.match("lm_head") and found.match("a.x") and not found.match("c.x")
    assert not Patterns((), "x").match("layers.0.mlp.gate")


def test_amd_quark() -> None:
    fp8 = imported(QWEN, {"quant_method": "fp8"})
    assert imported(QWEN, QUARK).layers == fp8.layers
    fp4 = {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}
    assert imported(QWEN, QUARK | {"global_quant_config": fp4}).layers[0].formats.ffn == "mxfp4"
    both = fp4 | {"input_tensors": {"dtype": "fp8_e4m3"}}
    assert imported(QWEN, QUARK | {"global_quant_config": both}).layers[0].formats.ffn == "mxfp4-w4a8"


def test_sections_of_other_names_count_or_are_refused() -> None:
    section = tensors_config(weights(8, None, type="float"))
    old = json.dumps(QWEN | {"compression_config": section}).encode()
    assert import_config(old, "config.json", "x") == imported(QWEN, section)
    for name in ("quantization", "quant_config"):
        data = json.dumps(QWEN | {name: {"bits": 4, "group_size": 64}}).encode()
        with pytest.raises(BadInput, match=rf"\$\.{name}.*they are not BF16"):
            import_config(data, "config.json", "x")
    four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    assert imported(QWEN, four) == imported(QWEN, four | {"quant_method": "bitsandbytes"})


def test_auto_round_keeps_modules_by_name() -> None:
    section = GPTQ | {"quant_method": "auto-round", "extra_config": {".*self_attn.*": {"bits": 16}}}
    found = imported(QWEN, section).layers[0].formats
    assert (found.attention, found.ffn) == ("bf16", "int4-g128-zp")
    eight = GPTQ | {"quant_method": "auto-round", "extra_config": {"model.layers.1.mlp.up_proj": {"bits": 8}}}
    assert [layer.formats.ffn for layer in imported(QWEN, eight).layers[:2]] == ["int4-g128-zp", "int8-g128-zp"]


@pytest.mark.parametrize(
    ("name", "file", "section"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False, "sym": True}, GPTQ),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMM"}, AWQ),
    ],
)
def test_older_files_beside_the_config(name: str, file: dict[str, object], section: dict[str, object]) -> None:
    data = json.dumps(QWEN).encode()
    found = import_config(data, "config.json", "x", json.dumps(file).encode(), name)
    assert found == imported(QWEN, section) and found.weight_bytes() < imported(QWEN).weight_bytes() / 2
