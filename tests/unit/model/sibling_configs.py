"""Siblings of the families: fields as their published configs have them, and the totals on their model cards.

Active parameters count the head, not the input embedding. None of these fields may be in the way.

CHECKED were compared, for all sizes that the copy has, with copies of the published config.json in public
repositories on GitHub; the others rest on their totals alone.
"""

from typing import Any

USUAL: dict[str, Any] = {
    "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0", "use_cache": True, "rope_scaling": None,
}  # fmt: skip
CHECKED = {  # and where the copy stands
    "qwen3-coder-480b": "documents of a serving engine's port, which prepare its weights",
    "deepseek-v2": "tests of a converter of architectures",
    "glm-4.5-air": "a log of ms-swift, which prints the model's configuration",
    "phi-3-mini": "a generator of ONNX graphs",
    "phi-4-mini": "tests of an engine in Rust",
    "granite-4-h-small": "a calculator of memory, relevant fields",
    "command-r": "tests of an engine in Rust",
    "ernie-4.5-21b": "tests of a calculator of memory",
    "hunyuan-a13b": "tests of a profiler, which keep its lists by layer",
    "nemotron-nano-9b-v2": "a converter for TensorRT, and tests of a calculator of memory",
    "minimax-m2": "tests of a tracer for vLLM",
    "glm-4-9b": "tests of an engine in Rust",
    "exaone-4-32b": "TensorRT-LLM's unit test of EXAONE 4, with 4 of its 64 layers",
    "internlm3-8b": "tests of an engine for MLX, the fields that it reads",
    "ling-lite-1.5": "tests of an engine for MLX, the whole file",
}
CONFIGS: dict[str, tuple[dict[str, Any], float, float]] = {
    "qwen3-coder-480b": (  # 480 B, 35 B
        USUAL | {
            "model_type": "qwen3_moe", "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128,
            "hidden_size": 6144, "intermediate_size": 8192, "max_position_embeddings": 262144, "max_window_layers":
            62, "mlp_only_layers": [], "moe_intermediate_size": 2560, "norm_topk_prob": True, "num_attention_heads":
            96, "num_experts": 160, "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8,
            "output_router_logits": False, "qkv_bias": False, "router_aux_loss_coef": 0.0,
            "shared_expert_intermediate_size": 0, "sliding_window": None, "use_qk_norm": True, "use_sliding_window":
            False, "vocab_size": 151936,
        }, 480.15, 34.54,
    ),
    "qwen3-vl-235b": (  # 235 B, 22 B
        {
            "model_type": "qwen3_vl_moe", "architectures": ["Qwen3VLMoeForConditionalGeneration"], "image_token_id":
            151655, "video_token_id": 1, "vision_start_token_id": 1, "vision_end_token_id": 2, "tie_word_embeddings":
            False, "vision_config": {"depth": 27, "hidden_size": 1152}, "text_config": {"attention_bias": False,
            "attention_dropout": 0.0, "decoder_sparse_step": 1, "dtype": "bfloat16", "eos_token_id": 1, "head_dim":
            128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
            "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_vl_moe_text",
            "moe_intermediate_size": 1536, "norm_topk_prob": True, "num_attention_heads": 64, "num_experts": 128,
            "num_experts_per_tok": 8, "num_hidden_layers": 94, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
            "rope_theta": 5000000, "use_cache": True, "vocab_size": 151936},
        }, 235.09, 21.57,
    ),
    "qwen3-vl-32b": (  # 33 B
        {
            "model_type": "qwen3_vl", "vision_config": {"depth": 27}, "text_config": {"model_type": "qwen3_vl_text",
            "attention_bias": False, "head_dim": 128, "hidden_size": 5120, "intermediate_size": 25600,
            "num_attention_heads": 64, "num_hidden_layers": 64, "num_key_value_heads": 8, "vocab_size": 151936,
            "max_position_embeddings": 262144, "rope_scaling": {"mrope_section": [24, 20, 20]}},
        }, 32.76, 31.98,
    ),
    "qwen3.5-397b": (  # 397 B, 17 B
        {
            "model_type": "qwen3_5_moe", "architectures": ["Qwen3_5MoeForConditionalGeneration"], "vision_config":
            {"depth": 27}, "text_config": {"model_type": "qwen3_5_moe_text", "attention_bias": False,
            "attn_output_gate": True, "full_attention_interval": 4, "head_dim": 256, "hidden_size": 4096,
            "layer_types": [*["linear_attention"] * 3, "full_attention"] * 15, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 64,
            "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144,
            "mlp_only_layers": [], "moe_intermediate_size": 1024, "mtp_num_hidden_layers": 1,
            "mtp_use_dedicated_embeddings": False, "num_attention_heads": 32, "num_experts": 512,
            "num_experts_per_tok": 10, "num_hidden_layers": 60, "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 1024, "vocab_size": 248320, "partial_rotary_factor": 0.25,
            "router_aux_loss_coef": 0.001, "rope_parameters": {"mrope_section": [11, 11, 10], "rope_type":
            "default"}},
        }, 396.35, 16.33,
    ),
    "deepseek-v2-lite": (  # 15.7 B, 2.4 B
        {
            "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range":
            0.02, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": False, "torch_dtype":
            "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "rope_scaling": {"beta_fast": 32,
            "factor": 40, "type": "yarn", "original_max_position_embeddings": 4096}, "architectures":
            ["DeepseekV2ForCausalLM"], "attention_bias": False, "aux_loss_alpha": 0.001, "first_k_dense_replace": 1,
            "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
            "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1,
            "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": False, "num_attention_heads": 16,
            "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "pretraining_tp": 1,
            "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "routed_scaling_factor": 1.0,
            "scoring_func": "softmax", "seq_aux": True, "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128,
            "vocab_size": 102400,
        }, 15.71, 2.45,
    ),
    "deepseek-v2": (  # 236 B, 21 B
        USUAL | {
            "attention_bias": False, "first_k_dense_replace": 1, "hidden_size": 5120, "intermediate_size": 12288,
            "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v2",
            "moe_intermediate_size": 1536, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 160,
            "n_shared_experts": 2, "num_attention_heads": 128, "num_experts_per_tok": 6, "num_hidden_layers": 60,
            "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "topk_group": 3, "v_head_dim": 128, "vocab_size": 102400,
        }, 235.74, 20.85,
    ),
    "glm-4.5-air": (  # 106 B, 12 B
        USUAL | {
            "attention_bias": True, "first_k_dense_replace": 1, "head_dim": 128, "hidden_size": 4096,
            "intermediate_size": 10944, "max_position_embeddings": 131072, "model_type": "glm4_moe",
            "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1,
            "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 8,
            "num_nextn_predict_layers": 1, "use_qk_norm": False, "vocab_size": 151552,
        }, 106.85, 12.8,
    ),
    "mixtral-8x22b": (  # 141 B, 39 B
        USUAL | {
            "model_type": "mixtral", "hidden_size": 6144, "intermediate_size": 16384, "max_position_embeddings":
            65536, "num_attention_heads": 48, "num_experts_per_tok": 2, "num_hidden_layers": 56,
            "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": False, "router_aux_loss_coef":
            0.001, "sliding_window": None, "vocab_size": 32768,
        }, 140.63, 38.96,
    ),
    "mistral-small-3.1": (  # 24 B
        {
            "model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10,
            "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
            "vision_feature_layer": -1, "vision_config": {"model_type": "pixtral"}, "text_config":
            {"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
            "initializer_range": 0.02, "intermediate_size": 32768, "max_position_embeddings": 131072, "model_type":
            "mistral", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps":
            1e-05, "rope_theta": 1000000000.0, "sliding_window": None, "use_cache": True, "vocab_size": 131072},
            "torch_dtype": "bfloat16",
        }, 23.57, 22.9,
    ),
    "phi-3-mini": (  # 3.8 B
        USUAL | {
            "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096,
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "sliding_window": 2047,
            "vocab_size": 32064, "original_max_position_embeddings": 4096, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
            "auto_map": {"a": "b"},
        }, 3.82, 3.72,
    ),
    "phi-4-mini": (  # 3.8 B
        {
            "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range":
            0.02, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": True, "torch_dtype":
            "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "rope_scaling": {"long_factor": [1.0,
            1.1], "short_factor": [1.0], "type": "longrope"}, "model_type": "phi3", "hidden_size": 3072,
            "intermediate_size": 8192, "max_position_embeddings": 131072, "num_attention_heads": 24,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "sliding_window": 262144, "vocab_size": 200064,
            "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False,
            "partial_rotary_factor": 0.75, "original_max_position_embeddings": 4096,
        }, 3.84, 3.84,
    ),
    "granite-4-h-small": (  # 32 B, 9 B
        USUAL | {
            "tie_word_embeddings": True, "architectures": ["GraniteMoeHybridForCausalLM"], "model_type":
            "granitemoehybrid", "attention_bias": False, "attention_multiplier": 0.0078125, "embedding_multiplier":
            12, "hidden_size": 4096, "intermediate_size": 768, "layer_types": [*["mamba"] * 5, "attention", *["mamba"]
            * 4] * 4, "logits_scaling": 16, "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_d_conv": 4,
            "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
            "mamba_proj_bias": False, "max_position_embeddings": 131072, "num_attention_heads": 32,
            "num_experts_per_tok": 10, "num_hidden_layers": 40, "num_key_value_heads": 8, "num_local_experts": 72,
            "output_router_logits": False, "position_embedding_type": "nope", "residual_multiplier": 0.22,
            "router_aux_loss_coef": 0.0, "shared_intermediate_size": 1536, "normalization_function": "rmsnorm",
            "vocab_size": 100352,
        }, 32.21, 8.8,
    ),
    "command-r": (  # 35 B
        USUAL | {
            "tie_word_embeddings": True, "architectures": ["CohereForCausalLM"], "model_type": "cohere",
            "attention_bias": False, "hidden_size": 8192, "intermediate_size": 22528, "layer_norm_eps": 1e-05,
            "logit_scale": 0.0625, "max_position_embeddings": 8192, "model_max_length": 131072, "num_attention_heads":
            64, "num_hidden_layers": 40, "num_key_value_heads": 64, "pad_token_id": 0, "use_qk_norm": False,
            "vocab_size": 256000,
        }, 34.98, 34.98,
    ),
    "command-r-plus": (  # 104 B
        {
            "model_type": "cohere", "attention_bias": False, "hidden_size": 12288, "intermediate_size": 33792,
            "num_attention_heads": 96, "num_hidden_layers": 64, "num_key_value_heads": 8, "use_qk_norm": True,
            "vocab_size": 256000, "logit_scale": 0.83,
        }, 103.81, 103.81,
    ),
    "command-a": (  # 111 B
        {
            "model_type": "cohere2", "attention_bias": False, "head_dim": 128, "hidden_size": 12288,
            "intermediate_size": 36864, "layer_switch": 4, "max_position_embeddings": 16384, "num_attention_heads":
            96, "num_hidden_layers": 64, "num_key_value_heads": 8, "order_of_interleaved_layers": "local_attn_first",
            "position_embedding_type": "rope_gptj", "rotary_pct": 1.0, "sliding_window": 4096,
            "sliding_window_pattern": 4, "use_embedding_sharing": True, "use_gated_activation": True,
            "use_parallel_block": True, "use_parallel_embedding": False, "use_qk_norm": False, "vocab_size": 256000,
            "logit_scale": 0.25, "_sliding_window_pattern": 4,
        }, 111.06, 111.06,
    ),
    "ernie-4.5-300b": (  # 300 B, 47 B
        USUAL | {
            "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_size": 8192,
            "intermediate_size": 28672, "max_position_embeddings": 131072, "moe_capacity": [64, 64, 64], "moe_gate":
            "topk", "moe_intermediate_size": 3584, "moe_k": 8, "moe_layer_end_index": 53, "moe_layer_interval": 1,
            "moe_layer_start_index": 3, "moe_num_experts": 64, "moe_use_aux_free": True, "num_attention_heads": 64,
            "num_hidden_layers": 54, "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "use_bias": False,
            "vocab_size": 103424,
        }, 299.48, 47.08,
    ),
    "ernie-4.5-21b": (  # 21 B, 3 B
        USUAL | {
            "tie_word_embeddings": True, "model_type": "ernie4_5_moe", "hidden_size": 2560, "intermediate_size":
            12288, "max_position_embeddings": 131072, "moe_capacity": [64, 64, 64], "moe_gate": "topk",
            "moe_intermediate_size": 1536, "moe_k": 6, "moe_layer_interval": 1, "moe_layer_start_index": 1,
            "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_use_aux_free": True, "num_attention_heads": 20,
            "num_hidden_layers": 28, "num_key_value_heads": 4, "use_bias": False, "vocab_size": 103424,
        }, 21.83, 3.35,
    ),
    "hunyuan-a13b": (  # 80 B, 13 B
        USUAL | {
            "tie_word_embeddings": True, "architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe",
            "add_classification_head": False, "attention_bias": False, "attention_head_dim": 128, "cla_share_factor":
            2, "use_cla": False, "dense_list": [4096, 0], "hidden_size": 4096, "intermediate_size": 3072,
            "kv_lora_rank": None, "max_position_embeddings": 32768, "mlp_bias": False, "moe_drop_tokens": False,
            "moe_intermediate_size": [3072] * 32, "moe_layer_num_skipped": 0, "moe_random_routing_dropped_token":
            False, "moe_topk": [8] * 32, "norm_type": "rms", "num_attention_heads": 32, "num_experts": 64,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "num_media_embeds": 257, "num_shared_expert": [1] * 32,
            "org_vocab_size": 128167, "pool_type": "last", "q_lora_rank": None, "qk_nope_head_dim": None,
            "use_mixed_mlp_moe": True, "use_qk_norm": True, "v_head_dim": None, "vocab_size": 128167,
        }, 80.39, 12.75,
    ),
    "nemotron-nano-9b-v2": (  # 8.89 B
        USUAL | {
            "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "attention_bias": False,
            "chunk_size": 128, "conv_kernel": 4, "expand": 2, "head_dim": 128, "hidden_dropout": 0.0, "hidden_size":
            4480, "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
            "intermediate_size": 15680, "layer_norm_epsilon": 1e-05, "mamba_head_dim": 80, "mamba_hidden_act": "silu",
            "mamba_num_heads": 128, "mamba_proj_bias": False, "max_position_embeddings": 131072, "mlp_bias": False,
            "mlp_hidden_act": "relu2", "n_groups": 8, "num_attention_heads": 40, "num_hidden_layers": 56,
            "num_key_value_heads": 8, "num_logits_to_keep": 1, "rescale_prenorm_residual": True, "residual_in_fp32":
            False, "ssm_state_size": 128, "time_step_floor": 0.0001, "time_step_limit": [0.0, float("inf")],
            "time_step_max":
            0.1, "time_step_min": 0.001, "use_bias": False, "use_conv_bias": True, "use_mamba_kernels": True,
            "vocab_size": 131072,
        }, 8.89, 8.3,
    ),
    "minimax-m2": (  # 230 B with its MTP layers, 10 B
        USUAL | {
            "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax", "attn_type_list": [1] * 62,
            "head_dim": 128, "hidden_size": 3072, "intermediate_size": 1536, "layernorm_full_attention_beta": 1.0,
            "max_position_embeddings": 196608, "mlp_intermediate_size": 8192, "mtp_transformer_layers": 1,
            "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8,
            "num_local_experts": 256, "num_mtp_modules": 3, "output_router_logits": False, "qk_norm_type":
            "per_layer", "rotary_dim": 64, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "scoring_func":
            "sigmoid", "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "sliding_window": None, "use_mtp":
            True, "use_qk_norm": True, "use_routing_bias": True, "vocab_size": 200064, "quantization_config":
            {"activation_scheme": "dynamic", "fmt": "float8_e4m3fn", "quant_method": "fp8", "weight_block_size": [128,
            128], "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]},
        }, 228.69, 10.42,
    ),
    "mimo-7b": (  # 7.6 B
        USUAL | {
            "architectures": ["MiMoForCausalLM"], "model_type": "mimo", "attention_bias": True, "head_dim": 128,
            "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 32768, "max_window_layers":
            36, "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
            "num_nextn_predict_layers": 1, "sliding_window": None, "use_mrope": False, "use_sliding_window": False,
            "vocab_size": 151680,
        }, 7.62, 7.0,
    ),
    "gemma-3-1b": (  # 1.00 B
        USUAL | {
            "tie_word_embeddings": True, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
            "attention_bias": False, "attn_logit_softcapping": None, "cache_implementation": "hybrid",
            "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size":
            1152, "intermediate_size": 6912, "max_position_embeddings": 32768, "num_attention_heads": 4,
            "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rope_local_base_freq":
            10000, "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144,
        }, 1.0, 1.0,
    ),
    "gemma-3-4b": (  # 3.88 B text
        {
            "model_type": "gemma3", "mm_tokens_per_image": 256, "boi_token_index": 1, "eoi_token_index": 2,
            "image_token_index": 3, "vision_config": {"hidden_size": 1152}, "text_config": {"hidden_size": 2560,
            "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling":
            {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
        }, 3.88, 3.88,
    ),
    "gemma-2-9b": (  # 9.24 B
        USUAL | {
            "tie_word_embeddings": True, "model_type": "gemma2", "attention_bias": False, "attn_logit_softcapping":
            50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0, "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "intermediate_size": 14336,
            "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42,
            "num_key_value_heads": 8, "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_size":
            4096, "vocab_size": 256000,
        }, 9.24, 9.24,
    ),
    "gemma-3n-e4b": (  # 6.87 B text
        {
            "model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text", "activation_sparsity_pattern":
            [*[0.95] * 10, *[0.0] * 25], "altup_active_idx": 0, "altup_coef_clip": 120.0, "altup_correct_scale": True,
            "altup_num_inputs": 4, "attention_bias": False, "head_dim": 256, "hidden_size": 2048,
            "hidden_size_per_layer_input": 256, "intermediate_size": [16384] * 35, "laurel_rank": 64, "layer_types":
            [*["sliding_attention"] * 4, "full_attention"] * 7, "max_position_embeddings": 32768,
            "num_attention_heads": 8, "num_hidden_layers": 35, "num_key_value_heads": 2, "num_kv_shared_layers": 15,
            "sliding_window": 512, "vocab_size": 262400, "vocab_size_per_layer_input": 262144,
            "final_logit_softcapping": 30.0, "rope_local_base_freq": 10000.0}, "vision_config": {}, "audio_config":
            {},
        }, 6.87, 4.52,
    ),
    "glm-4-9b": (  # 9.40 B
        USUAL | {
            "model_type": "glm4", "attention_bias": False, "head_dim": 128, "hidden_size": 4096, "intermediate_size":
            13696, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 40,
            "num_key_value_heads": 2, "vocab_size": 151552, "partial_rotary_factor": 0.5,
        }, 9.4, 8.78,
    ),
    "exaone-4-32b": (  # 32.0 B
        USUAL | {
            "model_type": "exaone4", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 27392, "layer_types":
            [*["sliding_attention"] * 3, "full_attention"] * 16, "max_position_embeddings": 131072,
            "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8, "sliding_window": 4096,
            "sliding_window_pattern": "LLLG", "vocab_size": 102400, "reorder_and_qk_norm": True,
        }, 32.0, 31.48,
    ),
    "starcoder2-15b": (  # 16.0 B
        {
            "model_type": "starcoder2", "hidden_size": 6144, "intermediate_size": 24576, "max_position_embeddings":
            16384, "mlp_type": "default", "norm_epsilon": 1e-05, "norm_type": "layer_norm", "num_attention_heads": 48,
            "num_hidden_layers": 40, "num_key_value_heads": 4, "sliding_window": 4096, "use_bias": True, "vocab_size":
            49152,
        }, 15.66, 15.65,
    ),
    "internlm3-8b": (  # 8.80 B
        USUAL | {
            "model_type": "internlm3", "bias": False, "head_dim": 128, "hidden_size": 4096, "intermediate_size":
            10240, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 48,
            "num_key_value_heads": 2, "qkv_bias": False, "vocab_size": 128512,
            "rope_scaling": {"factor": 6.0, "rope_type": "dynamic"},
        }, 8.8, 8.28,
    ),
    "ling-flash-2": (  # 103 B, 6.1 B with the embedding
        USUAL | {
            "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "first_k_dense_replace": 1,
            "head_dim": 128, "hidden_size": 4096, "intermediate_size": 9216, "moe_intermediate_size": 1024, "n_group":
            8, "num_attention_heads": 32, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 32,
            "num_key_value_heads": 4, "num_shared_experts": 1, "topk_group": 4, "use_qk_norm": True, "use_qkv_bias":
            False, "use_bias": False, "vocab_size": 157184, "moe_router_enable_expert_bias": True,
            "num_nextn_predict_layers": 0,
        }, 102.89, 5.51,
    ),
    "llama-3.2-1b": (  # 1.24 B
        USUAL | {
            "tie_word_embeddings": True, "model_type": "llama", "attention_bias": False, "head_dim": 64,
            "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
            "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
            "vocab_size": 128256,
        }, 1.24, 1.24,
    ),
    "qwen3-vl-30b": (  # 30.5 B, 3.3 B with the embedding
        {
            "model_type": "qwen3_vl_moe", "architectures": ["Qwen3VLMoeForConditionalGeneration"], "image_token_id":
            151655, "tie_word_embeddings": False, "vision_config": {"deepstack_visual_indexes": [8, 16, 24], "depth":
            27, "hidden_size": 1152}, "text_config": {"attention_bias": False, "decoder_sparse_step": 1, "head_dim":
            128, "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 262144, "mlp_only_layers":
            [], "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 768, "norm_topk_prob": True,
            "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
            "num_key_value_heads": 4, "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20],
            "rope_type": "default"}, "rope_theta": 5000000, "vocab_size": 151936},
        }, 30.53, 3.04,
    ),
    "ling-lite-1.5": (  # 16.8 B, 2.75 B with the embedding
        USUAL | {
            "architectures": ["BailingMoeForCausalLM"], "model_type": "bailing_moe", "first_k_dense_replace": 0,
            "hidden_size": 2048, "intermediate_size": 1408, "max_position_embeddings": 32768, "moe_intermediate_size":
            1408, "num_experts": 64, "num_shared_experts": 2, "norm_topk_prob": True, "num_attention_heads": 16,
            "num_experts_per_tok": 6, "num_hidden_layers": 28, "num_key_value_heads": 4, "pretraining_tp": 1,
            "use_bias": False, "use_qkv_bias": False, "vocab_size": 126464, "output_router_logits": False,
            "embedding_dropout": 0.0, "norm_head": False, "norm_softmax": False, "output_dropout": 0.0,
        }, 16.8, 2.49,
    ),
    "gemma-2-2b": (  # 2.61 B; the file leaves the tied embedding to the type's default
        {
            "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "attention_bias": False,
            "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "intermediate_size": 9216,
            "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads":
            4, "query_pre_attn_scalar": 256, "sliding_window": 4096, "torch_dtype": "bfloat16", "vocab_size": 256000,
        }, 2.61, 2.61,
    ),
}  # fmt: skip
