"""Importing Hugging Face configs: equal to the catalogue, without guessing."""

import json
from pathlib import Path
from typing import Any

import pytest

from stageline.catalog.loader import Catalog
from stageline.errors import BadInput
from stageline.model.hf import import_config
from stageline.model.spec import ModelSpec

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 100,
}


def imported(config: dict[str, Any]) -> ModelSpec:
    return import_config(json.dumps(config).encode(), "config.json", "x")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("moonshotai--Kimi-K3", "kimi-k3"),
        ("moonshotai--Kimi-K2.5", "kimi-k2.6"),
        ("deepseek-ai--DeepSeek-V3", "deepseek-v3"),
        ("meta-llama--Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama--Meta-Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama--Meta-Llama-3.1-405B", "llama-3.1-405b"),
        ("Qwen--Qwen3-8B", "qwen3-8b"),
        ("Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("openai--gpt-oss-20b", "gpt-oss-20b"),
    ],
)
def test_the_catalogue_equals_the_published_config(shared_data: Path, file: str, name: str) -> None:
    path = shared_data / "configs" / f"{file}.json"
    found, entry = import_config(path.read_bytes(), path.name, name), Catalog().model(name).spec
    for field in ("hidden", "vocab", "tied", "context", "kv_type", "state_type", "residual_block"):
        assert getattr(found, field) == getattr(entry, field), field
    assert [(x.attention, x.ffn) for x in found.layers] == [(x.attention, x.ffn) for x in entry.layers]
    count = len(entry.layers)
    assert [found.layer_bytes(i) for i in range(count)] == [entry.layer_bytes(i) for i in range(count)]
    assert found.weight_bytes() == entry.weight_bytes()


def test_mixed_precision_by_module(shared_data: Path) -> None:
    spec = import_config((shared_data / "configs/nvidia--Qwen3.6-27B-NVFP4.json").read_bytes(), "c", "x")
    assert round(spec.weight_bytes() / 1e9, 1) == pytest.approx(20.2, abs=0.06)
    assert spec.total_params() == 26_895_998_464
    assert spec.left_out == ("vision tower", "MTP layer")
    assert spec.layers[0].formats.attention == "fp8"
    assert spec.layers[0].formats.ffn == spec.formats.head == "nvfp4-w4a16"
    assert spec.formats.embedding == "bf16"


def test_another_quantisation_of_the_same_model(shared_data: Path) -> None:
    read = {
        name: import_config((shared_data / f"configs/{name}.json").read_bytes(), name, "x")
        for name in ("nvidia--Kimi-K2.6-NVFP4", "moonshotai--Kimi-K2.5")
    }
    first, second = read.values()
    assert first.total_params() == second.total_params()
    assert first.layers[1].formats.routed_experts == "nvfp4"
    assert first.layers[1].formats.attention == "bf16"


def test_defaults_of_a_plain_llama() -> None:
    spec = imported(LLAMA)
    assert spec.kv_bytes_per_token(0) == 2 * 2 * 16 * 2
    assert not spec.tied


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "lama"}, "did you mean llama"),
        ({"model_type": "mamba"}, "hidden_size, num_hidden_layers"),
        ({"model_type": "gpt_oss"}, "$.n_routed_experts: missing"),
        ({"model_type": None}, "$.model_type"),
        ({"hidden_size": "64"}, "$.hidden_size"),
        ({"hidden_size": None}, "$.hidden_size"),
        ({"num_hidden_layers": 0}, "$.num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "$.num_hidden_layers"),
        ({"num_attention_heads": 0}, "$.num_attention_heads"),
        ({"new_adapter_rank": 8}, "$.new_adapter_rank"),
        ({"extra_layers": [1, 2]}, "$.extra_layers"),
        ({"num_key_value_heads": 3}, "kv_heads"),
        ({"tie_word_embeddings": "yes"}, "$.tie_word_embeddings"),
        ({"torch_dtype": "float12"}, "$.dtype"),
        ({"quantization_config": {"quant_method": "quark"}}, "$.quantization_config.quant_method"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}}, "weight_block_size"),
        ({"text_config": {}}, "$.model_type"),
    ],
)
def test_what_is_not_understood_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput) as error:
        imported(LLAMA | change)
    assert named in str(error.value)


def test_null_and_false_switch_nothing_on() -> None:
    assert imported(LLAMA | {"new_thing": None, "other_thing": False}) == imported(LLAMA)


@pytest.mark.parametrize("data", [b"", b"[1]", b"{", b"\xff\xfe", b'{"model_type": []}', b"[" * 100_000])
def test_malformed_files(data: bytes) -> None:
    with pytest.raises(BadInput, match=r"config\.json"):
        import_config(data, "config.json", "x")


def test_biases_and_windows_count() -> None:
    plain, biased = imported(LLAMA), imported(LLAMA | {"attention_bias": True})
    assert biased.total_params() - plain.total_params() == 2 * (64 + 2 * 32 + 64)
    windowed = imported(LLAMA | {"model_type": "mistral", "sliding_window": 32})
    assert [x.attention.window_tokens for x in windowed.layers] == [32, 32]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}, 131_072),
        ({"type": "linear", "factor": 2}, 16_384),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024}, 8192),
        ({"rope_type": "longrope", "factor": 32.0}, 8192),
        ({"full_attention": {"rope_type": "default"}}, 8192),
    ],
)
def test_rotary_scaling_stretches_the_context(rope: dict[str, Any], context: int) -> None:
    for name in ("rope_scaling", "rope_parameters"):
        assert imported(LLAMA | {"max_position_embeddings": 8192, name: rope}).context == context
