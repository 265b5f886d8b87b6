"""--quantization of a launch line: formats made in flight are planned as such, the others need their checkpoint."""

import json

import pytest

from stageline.api.planning import find_inputs
from stageline.api.quantization import as_loaded, name_in_flight
from stageline.catalog.loader import Catalog
from stageline.errors import BadInput, UsageError
from stageline.model.hf import import_config
from stageline.model.spec import ModelSpec

SHELF = Catalog([])
LLAMA, MOE, GPT_OSS = (SHELF.model(name).spec for name in ("llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b"))
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 512, "max_position_embeddings": 4096,
}  # fmt: skip


def checkpoint(**quantization: object) -> ModelSpec:
    return import_config(json.dumps(CONFIG | {"quantization_config": quantization}).encode(), "config.json", "m")


AWQ = checkpoint(quant_method="awq", bits=4, group_size=128, zero_point=True)
FP8 = checkpoint(quant_method="fp8", weight_block_size=[128, 128])


@pytest.mark.parametrize(
    ("engine", "name", "weights"),
    [
        ("vllm-v1", "fp8", "fp8"),
        ("vllm-v1", "fp8_per_block", "fp8-block"),
        ("vllm-v1", "ptpc_fp8", "fp8"),
        ("vllm-v1", "mxfp8", "mxfp8"),
        ("vllm-v1", "bitsandbytes", "nf4-double"),
        ("sglang", "w8a8_fp8", "fp8"),
        ("sglang", "bitsandbytes", "nf4-double"),
        (None, "bitsandbytes", "nf4-double"),
    ],
)
def test_weights_are_quantised_as_they_are_loaded(engine: str | None, name: str, weights: str) -> None:
    assert as_loaded(LLAMA, name, engine) == LLAMA.requantised(weights)


@pytest.mark.parametrize("name", ["experts_int8", "int8_per_channel_weight_only"])
def test_some_names_quantise_experts_alone(name: str) -> None:
    formats = as_loaded(MOE, name, "vllm-v1").layers[0].formats
    assert (formats.routed_experts, formats.attention, formats.shared_experts) == ("int8-channel", "bf16", "bf16")
    with pytest.raises(BadInput, match="has none"):
        as_loaded(LLAMA, name, "vllm-v1")


@pytest.mark.parametrize(
    ("model", "engine", "name"),
    [
        (AWQ, "vllm-v1", "awq"),
        (AWQ, "vllm-v1", "awq_marlin"),
        (AWQ, "sglang", "moe_wna16"),
        (FP8, "vllm-v1", "fp8"),  # not one scale per tensor in place of its blocks
        (GPT_OSS, "vllm-v1", "mxfp4"),  # not its attention too
        (SHELF.model("kimi-k3").spec, "vllm-v1", "compressed-tensors"),
    ],
)
def test_a_checkpoint_that_is_quantised_so_is_planned_as_it_is(model: ModelSpec, engine: str, name: str) -> None:
    assert as_loaded(model, name, engine) == model


@pytest.mark.parametrize(
    ("model", "engine", "name", "reason"),
    [
        (LLAMA, "vllm-v1", "awq", "Cannot find the config file for awq.*bitsandbytes"),
        (LLAMA, "vllm-v1", "gptq_marlin", "not quantised"),
        (LLAMA, "sglang", "w8a8_int8", "not quantised, and SGLang ends.*nvfp4_online"),
        (LLAMA, "vllm-v1", "modelopt", "not quantised"),
        (LLAMA, "vllm-v1", "gguf", "vLLM has it, but it is not modelled"),
        (LLAMA, "vllm-v1", "awqq", "no such method"),
        (LLAMA, "vllm-v1", "w8a8_fp8", "no such method"),
        (AWQ, "vllm-v1", "gptq", "quantised otherwise: quant_method awq"),
        (AWQ, "vllm-v1", "bitsandbytes", "quantised otherwise"),
        (GPT_OSS, "vllm-v1", "fp8", "quantised otherwise: quant_method mxfp4"),
    ],
)
def test_a_checkpoint_that_is_not_is_refused_with_the_way_out(
    model: ModelSpec, engine: str, name: str, reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        as_loaded(model, name, engine)


def test_a_format_has_the_name_that_makes_it() -> None:
    for engine in ("vllm-v1", "sglang"):
        for weights in ("fp8", "mxfp8", "nvfp4", "nf4-double"):
            name = name_in_flight(engine, weights)
            assert name is not None
            assert as_loaded(LLAMA, name, engine) == LLAMA.requantised(weights)
        assert name_in_flight(engine, "int4") is None
        assert name_in_flight(engine, "int8-channel") is None


def test_two_words_for_the_weights_are_refused() -> None:
    with pytest.raises(UsageError, match="give one"):
        find_inputs("llama-3.1-8b", "h100-sxm", {"weights": "fp8", "quantization": "fp8"}, [])
