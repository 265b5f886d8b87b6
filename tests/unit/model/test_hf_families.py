"""Other models of the families: fields of their published configs, and the totals on their model cards."""

import json
from typing import Any

import pytest

from stageline.errors import BadInput
from stageline.model.attention import Compressed, Gqa, Mla
from stageline.model.hf import import_config
from stageline.model.spec import ModelSpec, kind_name
from stageline.model.summary import summarise

EVERY_SECOND = ["sliding_attention", "full_attention"]
V4 = {
    "model_type": "deepseek_v4", "head_dim": 512, "index_head_dim": 128, "index_n_heads": 64, "hc_mult": 4,
    "qk_rope_head_dim": 64, "sliding_window": 128, "n_shared_experts": 1, "num_key_value_heads": 1,
    "o_lora_rank": 1024, "num_experts_per_tok": 6, "num_nextn_predict_layers": 1, "vocab_size": 129_280,
}  # fmt: skip
CONFIGS: dict[str, tuple[dict[str, Any], float, float]] = {
    "gpt-oss-120b": (  # 116.83 B, 5.13 B
        {
            "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
            "num_local_experts": 128, "num_experts_per_tok": 4, "experts_per_token": 4, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "attention_bias": True, "sliding_window": 128,
            "layer_types": EVERY_SECOND * 18, "vocab_size": 201_088, "swiglu_limit": 7.0,
        }, 116.83, 5.13,
    ),
    "nemotron-h-8b": (  # 8.1 B
        {
            "model_type": "nemotron_h", "hidden_size": 4096, "intermediate_size": 21_504, "num_hidden_layers": 52,
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "mamba_num_heads": 128,
            "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "num_attention_heads": 32,
            "num_key_value_heads": 8, "attention_head_dim": 128, "vocab_size": 131_072, "expand": 2,
        }, 8.10, 7.56,
    ),
    "nemotron-3-super": (  # 120 B, 12 B: experts in a latent space of 1,024
        {
            "model_type": "nemotron_h", "hidden_size": 4096, "moe_intermediate_size": 2688, "n_routed_experts": 512,
            "layers_block_type": [
                {"M": "mamba", "E": "moe", "*": "attention"}[c]
                for c in "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
            ],
            "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024, "num_experts_per_tok": 22,
            "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "num_attention_heads": 32,
            "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 131_072, "n_shared_experts": 1,
        }, 120.67, 12.23,
    ),
    "jamba-1.5-mini": (  # 51.57 B, 12 B; config.json as a test of onnx-diagnostic quotes it
        {
            "model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4,
            "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 16, "num_experts_per_tok": 2,
            "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256, "mamba_conv_bias": True,
            "mamba_proj_bias": False, "use_mamba_kernels": True, "num_logits_to_keep": 1, "vocab_size": 65_536,
        }, 51.57, 11.84,
    ),
    "falcon-h1-0.5b": (  # 521 M
        {
            "model_type": "falcon_h1", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 36,
            "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "mamba_d_ssm": 1536,
            "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4,
            "mamba_expand": 2, "mamba_chunk_size": 128, "mamba_rms_norm": False, "vocab_size": 32_784,
            "mlp_multipliers": [0.88, 0.5], "ssm_multipliers": [0.35, 0.25, 0.35, 0.5, 0.35],
        }, 0.52, 0.49,
    ),
    "falcon-h1-7b": (  # 7.59 B
        {
            "model_type": "falcon_h1", "hidden_size": 3072, "intermediate_size": 12_288, "num_hidden_layers": 44,
            "num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 128, "mamba_d_ssm": 3072,
            "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_d_conv": 4,
            "mamba_expand": 2, "mamba_rms_norm": False, "vocab_size": 130_048,
        }, 7.59, 7.19,
    ),
    "falcon-h1-34b": (  # 33.6 B
        {
            "model_type": "falcon_h1", "hidden_size": 5120, "intermediate_size": 21_504, "num_hidden_layers": 72,
            "num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": 128, "mamba_d_ssm": 4096,
            "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_d_state": 256, "mamba_n_groups": 2, "mamba_d_conv": 4,
            "mamba_expand": 2, "mamba_rms_norm": False, "vocab_size": 261_120,
        }, 33.64, 32.3,
    ),
    "llama-4-maverick": (  # 400 B text, 17 B = 16.15 + 1.03: every second layer has experts
        {
            "model_type": "llama4", "text_config": {
                "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
                "intermediate_size_mlp": 16_384, "num_hidden_layers": 48, "num_local_experts": 128,
                "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192,
                "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202_048,
            },
        }, 400.71, 16.15,
    ),
    "qwen3-next-80b": (  # 80 B, 3 B
        {
            "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48,
            "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "full_attention_interval": 4,
            "shared_expert_intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 2,
            "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "linear_value_head_dim": 128, "vocab_size": 151_936, "mlp_only_layers": [],
        }, 79.67, 3.56,
    ),
    "glm-4.5": (  # 355 B with the MTP layer, 32 B
        {
            "model_type": "glm4_moe", "hidden_size": 5120, "intermediate_size": 12_288, "num_hidden_layers": 92,
            "first_k_dense_replace": 3, "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "moe_intermediate_size": 1536, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
            "attention_bias": True, "use_qk_norm": True, "num_nextn_predict_layers": 1, "vocab_size": 151_552,
        }, 352.80, 32.86,
    ),
    "glm-4.7-flash": (  # 30 B, 3 B: latent attention
        {
            "model_type": "glm4_moe_lite", "hidden_size": 2048, "intermediate_size": 10_240, "num_hidden_layers": 47,
            "mlp_layer_types": ["dense"] + ["sparse"] * 46, "num_attention_heads": 20, "q_lora_rank": 768,
            "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
            "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
            "vocab_size": 154_880,
        }, 29.94, 3.58,
    ),
    "deepseek-v4-pro": (  # 1.6 T, 49 B
        V4 | {
            "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 61, "o_groups": 16,
            "q_lora_rank": 1536, "moe_intermediate_size": 3072, "n_routed_experts": 384, "index_topk": 1024,
            "compress_ratios": [128, 128] + [4, 128] * 29 + [4, 0],
        }, 1573.00, 48.85,
    ),
    "minimax-m1": (  # 456 B; 45.9 B = 47.17 - 1.23, without the head
        {
            "model_type": "minimax_m1", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80,
            "attn_type_list": ([0] * 7 + [1]) * 10, "num_local_experts": 32, "num_experts_per_tok": 2,
            "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200_064,
            "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "postnorm": True, "rotary_dim": 64,
        }, 456.09, 47.17,
    ),
    "step-3.5-flash": (  # 196 B, 11 B: 96 heads in sliding layers
        {
            "model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11_264, "num_hidden_layers": 45,
            "moe_layers_enum": ",".join(map(str, range(3, 45))), "moe_num_experts": 288, "moe_top_k": 8,
            "moe_intermediate_size": 1280, "share_expert_dim": 1280, "num_attention_heads": 64,
            "num_attention_groups": 8, "head_dim": 128, "sliding_window": 512, "num_nextn_predict_layers": 3,
            "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 12, "vocab_size": 128_896,
            "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
            "rope_theta": [5e6, 1e4, 1e4, 1e4] * 12, "moe_every_n_layer": 1, "use_moe": True, "zero_centered": True,
        }, 196.96, 11.46,
    ),
    "gemma-3-27b": (  # 27.0 B text
        {
            "model_type": "gemma3", "vision_config": {}, "text_config": {
                "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21_504, "num_hidden_layers": 62,
                "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
                "vocab_size": 262_208, "query_pre_attn_scalar": 168,
            },
        }, 27.01, 27.01,
    ),
    "gemma-4-31b": (  # 30.7 B
        {
            "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21_504, "num_hidden_layers": 60,
            "num_attention_heads": 32, "num_key_value_heads": 16, "num_global_key_value_heads": 4, "head_dim": 256,
            "global_head_dim": 512, "attention_k_eq_v": True, "sliding_window": 1024, "enable_moe_block": False,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10, "vocab_size": 262_144,
        }, 30.70, 30.70,
    ),
    "kimi-linear-48b": (  # 48 B (49.1 B in the checkpoint), 3 B
        {
            "model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
                "kda_layers": [i for i in range(1, 28) if i % 4 and i != 27], "short_conv_kernel_size": 4,
            },
            "first_k_dense_replace": 1, "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
            "moe_intermediate_size": 1024, "num_attention_heads": 32, "kv_lora_rank": 512, "q_lora_rank": None,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163_840,
        }, 49.12, 3.11,
    ),
    "phi-4": (  # 14.66 B
        {
            "model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17_920, "num_hidden_layers": 40,
            "num_attention_heads": 40, "num_key_value_heads": 10, "vocab_size": 100_352, "sliding_window": None,
            "original_max_position_embeddings": 16_384, "embd_pdrop": 0.0,
        }, 14.66, 14.15,
    ),
    "phi-3.5-moe": (  # 41.87 B, 6.6 B = 6.51 + 0.13
        {
            "model_type": "phimoe", "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2,
            "attention_bias": True, "lm_head_bias": True, "sliding_window": 131_072,
            "max_position_embeddings": 131_072, "vocab_size": 32_064,
        }, 41.87, 6.51,
    ),
    "olmo-3-32b": (  # 32.2 B
        {
            "model_type": "olmo3", "hidden_size": 5120, "intermediate_size": 27_648, "num_hidden_layers": 64,
            "num_attention_heads": 40, "num_key_value_heads": 8, "sliding_window": 4096, "vocab_size": 100_278,
        }, 32.23, 31.72,
    ),
}  # fmt: skip


def imported(config: dict[str, Any]) -> ModelSpec:
    return import_config(json.dumps(config).encode(), "config.json", "x")


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters(name: str) -> None:
    config, total, active = CONFIGS[name]
    found = imported(config)
    assert (round(found.total_params() / 1e9, 2), round(found.active_params() / 1e9, 2)) == (total, active)


def changed(name: str, **fields: Any) -> dict[str, Any]:
    return CONFIGS[name][0] | fields


def test_sinks_and_biases_count() -> None:
    """64 sinks; q, k, v and o biases; router biases; biases of gate, up and down of 128 experts."""
    tensors = {t.name: t for t in imported(CONFIGS["gpt-oss-120b"][0]).layers[0].tensors(2880)}
    assert tensors["bias"].params == 64 + (64 + 2 * 8) * 64 + 2880
    assert tensors["expert_bias"].params == 128 * 3 * 2880
    assert tensors["router"].params == 128 * 2881


def test_indexers_may_be_shared() -> None:
    """Layers between those with an indexer use its choice: neither weights nor index keys of their own."""
    base = changed("glm-4.7-flash", model_type="glm_moe_dsa", index_topk=2048, index_n_heads=32, index_head_dim=128)
    every, fourth = imported(base), imported(base | {"index_topk_freq": 4, "index_skip_topk_offset": 3})
    own = [isinstance(x.attention, Mla) and x.attention.index_heads > 0 for x in fourth.layers]
    assert own == [i <= 2 or (i - 2) % 4 == 0 for i in range(47)]
    indexer = 768 * 32 * 128 + 2048 * 128 + 2048 * 32 + 2 * 128
    assert every.total_params() - fourth.total_params() == own.count(False) * indexer
    assert fourth.kv_bytes_per_token(3) == 576 * 2 and every.kv_bytes_per_token(3) == 576 * 2 + 132
    with pytest.raises(BadInput, match="indexer_types"):
        imported(base | {"indexer_types": ["shared"] * 47})


def test_layers_may_borrow_kv() -> None:
    """The last layers of small Gemma 4 models read the cache of an earlier layer, and their FFN is twice as wide."""
    base = changed("gemma-4-31b", attention_k_eq_v=False, num_global_key_value_heads=None)
    lent = imported(base | {"num_kv_shared_layers": 20, "use_double_wide_mlp": True})
    own = imported(base)
    assert [lent.kv_bytes_per_token(i) > 0 for i in range(60)] == [True] * 40 + [False] * 20
    sliding, full = 2 * 16 * 256 * 5376 + 256, 2 * 16 * 512 * 5376 + 512  # k and v projections, the norm of k
    lost = 20 // 6 * (5 * sliding + full) + 1 * sliding + 1 * full
    assert own.total_params() - lent.total_params() == lost - 20 * 3 * 5376 * 21_504


def test_inputs_per_layer_cross_every_boundary() -> None:
    config = changed("gemma-4-31b", hidden_size_per_layer_input=256, vocab_size_per_layer_input=262_144)
    plain, found = imported(CONFIGS["gemma-4-31b"][0]), imported(config)
    assert found.boundary_elements(7) == 5376 + 60 * 256
    per_layer = 2 * 5376 * 256 + 5376
    assert found.total_params() - plain.total_params() == 60 * (262_144 * 256 + 5376 * 256 + per_layer) + 256


def test_compressed_layers_by_name() -> None:
    by_ratio = CONFIGS["deepseek-v4-pro"][0]
    names = {128: "heavily_compressed_attention", 4: "compressed_sparse_attention"}
    config = {k: v for k, v in by_ratio.items() if k != "compress_ratios"}
    config["layer_types"] = [names[r] for r in by_ratio["compress_ratios"][:61]]
    assert imported(config) == imported(by_ratio)
    found = imported(by_ratio).layers[2].attention
    assert isinstance(found, Compressed) and (found.ratio, found.index_top_k) == (4, 1024)


def test_windows_from_patterns() -> None:
    base = changed("phi-4", model_type="llama", sliding_window=64)
    for pattern, full in (({}, 0), ({"sliding_window_pattern": 4}, 10), ({"sliding_window_pattern": "LLLG"}, 10)):
        kinds = [x.attention.window_tokens for x in imported(base | pattern).layers if isinstance(x.attention, Gqa)]
        assert kinds.count(0) == full and set(kinds) <= {0, 64}


def test_predicted_layers_may_follow_in_lists() -> None:
    config = changed("gpt-oss-120b", num_nextn_predict_layers=2, layer_types=EVERY_SECOND * 19)
    found = imported(config)
    assert len(found.layers) == 36 and found.left_out == ("2 MTP layers",)
    with pytest.raises(BadInput, match="layer_types"):
        imported(config | {"num_nextn_predict_layers": 0})


@pytest.mark.parametrize(
    ("name", "fields", "named"),
    [
        ("nemotron-h-8b", {"hybrid_override_pattern": "M-M-X"}, "hybrid_override_pattern"),
        ("nemotron-h-8b", {"num_hidden_layers": 51}, "the model has 51 layers"),
        ("nemotron-h-8b", {"mamba_num_heads": None}, "mamba_num_heads: missing"),
        ("qwen3-next-80b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("deepseek-v4-pro", {"compress_ratios": [4]}, "compress_ratios"),
        ("deepseek-v4-pro", {"expert_dtype": "fp3"}, "expert_dtype"),
        ("gpt-oss-120b", {"layer_types": ["sliding"] * 36}, "layer_types"),
        ("gpt-oss-120b", {"model_type": "gpt_oss_v2"}, "did you mean gpt_oss"),
        ("minimax-m1", {"attn_type_list": [1]}, "layer_types"),
    ],
)
def test_what_does_not_fit_together_is_named(name: str, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        imported(changed(name, **fields))


def test_summaries_separate_windows_from_what_grows() -> None:
    found = summarise(imported(CONFIGS["gpt-oss-120b"][0]))
    assert (found.kv_bytes_per_token, found.kv_bytes_per_long_token) == (36 * 2048, 18 * 2048)
    assert found.window_bytes_per_request == 18 * 128 * 2048


def test_biases_by_default_always_or_as_the_config_says() -> None:
    base = {
        "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
        "num_key_value_heads": 2, "vocab_size": 100,
    }  # fmt: skip
    expected = {  # (without attention_bias, false, true): q, k and v have 768 outputs, o has 512
        "llama": (0, 0, 768 + 512), "qwen2": (768, 768, 768), "glm4": (768, 0, 768), "seed_oss": (768, 0, 768),
    }  # fmt: skip
    for name, biases in expected.items():
        configs = [base | {"model_type": name}] + [
            base | {"model_type": name, "attention_bias": b} for b in (False, True)
        ]
        found = [t.params for c in configs for t in imported(c).layers[0].tensors(512) if t.name == "bias"]
        assert tuple(found) == biases, name
    seed = base | {"model_type": "seed_oss", "attention_bias": True, "attention_out_bias": True}
    assert [t.params for t in imported(seed).layers[0].tensors(512) if t.name == "bias"] == [768 + 512]


def test_phi_2_to_the_last_parameter() -> None:
    """The checkpoint has 2,779,683,840: biases of all projections and of the head, norms with biases."""
    config = {
        "model_type": "phi", "hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 51_200, "partial_rotary_factor": 0.4,
    }  # fmt: skip
    assert imported(config).total_params() == 2_779_683_840


def test_sizes_that_published_configs_leave_out() -> None:
    """Gemma 3 4B: 8 heads, 4 KV heads of 256 and the vocabulary are the class's defaults; 3.88 B of text."""
    text = {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34,
        "sliding_window": 1024,
    }  # fmt: skip
    found = imported({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}})
    assert round(found.total_params() / 1e9, 2) == 3.88 and found.tied
    assert sum(x.attention.caches()[0].kept_tokens == 0 for x in found.layers) == 5


def test_an_architecture_tells_types_of_one_name_apart() -> None:
    fields = {
        "model_type": "minimax", "architectures": ["MiniMaxM2ForCausalLM"], "hidden_size": 3072, "head_dim": 128,
        "intermediate_size": 1536, "mlp_intermediate_size": 8192, "num_hidden_layers": 62, "num_local_experts": 256,
        "num_experts_per_tok": 8, "num_attention_heads": 48, "num_key_value_heads": 8, "vocab_size": 200_064,
        "attn_type_list": [1] * 62, "use_qk_norm": True, "qk_norm_type": "per_layer", "shared_intermediate_size": 0,
    }  # fmt: skip
    assert round(imported(fields).total_params() / 1e9, 2) == 228.69
    with pytest.raises(BadInput, match="attn_type_list"):
        imported(fields | {"attn_type_list": [0, 1] * 31})


def test_jamba_keeps_kv_in_every_eighth_layer_and_states_in_the_others() -> None:
    spec = imported(CONFIGS["jamba-1.5-mini"][0])
    assert spec.total_params() == 51_570_323_328
    assert [i for i in range(32) if spec.kv_bytes_per_token(i)] == [4, 12, 20, 28]
    assert spec.kv_bytes_per_token(4) == 2 * 8 * 128 * 2
    # 8,192 channels with a state of 16 in fp32, and the last three inputs of their convolutions in bf16
    assert spec.state_bytes(0) == 8192 * 16 * 4 + 3 * 8192 * 2 and spec.state_bytes(4) == 0
    assert [kind_name(spec.layers[i]) for i in (0, 1, 4)] == ["mamba+dense", "mamba+moe", "gqa+dense"]


def test_falcon_h1_keeps_kv_and_states_in_every_layer() -> None:
    spec = imported(CONFIGS["falcon-h1-0.5b"][0])
    assert spec.total_params() == 521_411_104
    assert {spec.kv_bytes_per_token(i) for i in range(36)} == {2 * 2 * 64 * 2}
    # recurrent state (24, 64, 128) in fp32; 1,536 + 2 x 128 channels of the convolution
    assert {spec.state_bytes(i) for i in range(36)} == {24 * 64 * 128 * 4 + 3 * 1792 * 2}
    assert kind_name(spec.layers[0]) == "parallel+dense"
    for name, says in (("mamba_proj_bias", "input projection"), ("projectors_bias", "output projections")):
        with pytest.raises(BadInput, match=says):
            imported(CONFIGS["falcon-h1-0.5b"][0] | {name: True})
    with pytest.raises(BadInput, match="24 heads of it are not mamba_d_ssm 1536"):
        imported(CONFIGS["falcon-h1-0.5b"][0] | {"mamba_d_head": 32})


def test_other_fields_of_jamba_and_falcon_h1() -> None:
    jamba = CONFIGS["jamba-1.5-mini"][0]
    assert imported(jamba | {"mamba_dt_rank": "auto"}) == imported(jamba)
    alone = imported(jamba | {"num_experts": 1})
    assert {kind_name(layer) for layer in alone.layers} == {"mamba+dense", "gqa+dense"}
    falcon = CONFIGS["falcon-h1-0.5b"][0]
    assert imported(falcon | {"mamba_d_head": "auto"}) == imported(falcon)
    assert imported(falcon | {"mamba_rms_norm": True}).total_params() - 521_411_104 == 36 * 1536
    quantised = imported(falcon | {"quantization_config": {"quant_method": "fp8", "ignored_layers": ["mamba"]}})
    assert quantised.layers[0].formats.attention == "bf16" and quantised.layers[0].formats.ffn == "fp8"
