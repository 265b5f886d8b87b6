"""Reads the attention and FFN of every layer from a config.json, by family of Hugging Face model types."""

from collections.abc import Callable

from stageline.errors import BadInput
from stageline.model.attention import Attention, GatedDelta, Gqa, Kda, Mla
from stageline.model.check import MAX_LAYERS
from stageline.model.ffn import Dense, Ffn, Moe
from stageline.model.hf_fields import ConfigFields

Parts = list[tuple[Attention, Ffn]]


def layer_count(f: ConfigFields) -> int:
    """num_hidden_layers. Raises BadInput past MAX_LAYERS."""
    count = f.integer("num_hidden_layers")
    if not 1 <= count <= MAX_LAYERS:
        raise BadInput(f.at("num_hidden_layers"), count, f"a model has 1 to {MAX_LAYERS} layers")
    return count


def _gqa(f: ConfigFields, *, qkv_bias: bool = False, qk_norm: bool = False, window: int = 0) -> Gqa:
    heads = f.integer("num_attention_heads")
    if not heads:
        raise BadInput(f.at("num_attention_heads"), heads, "must be positive")
    bias = f.flag("attention_bias")
    return Gqa(
        heads=heads,
        kv_heads=f.integer("num_key_value_heads", default=heads),
        head_dim=f.integer("head_dim", default=f.integer("hidden_size") // heads),
        qkv_bias=bias or qkv_bias,
        o_bias=bias,
        qk_norm=qk_norm,
        output_gate=f.flag("attn_output_gate"),
        window_tokens=window,
    )


def _windows(f: ConfigFields, count: int) -> list[int]:
    """Sliding window of every layer in tokens; 0: none."""
    window = f.integer("sliding_window", default=0)
    kinds = f.words("layer_types")
    if not window or not f.flag("use_sliding_window", default=True):
        return [0] * count
    if kinds and len(kinds) != count:
        raise BadInput(f.at("layer_types"), len(kinds), f"the model has {count} layers")
    if kinds:
        return [window if kind == "sliding_attention" else 0 for kind in kinds]
    full = f.integer("max_window_layers", default=0) if "use_sliding_window" in f.raw else 0
    return [window if i >= full else 0 for i in range(count)]


def _dense(f: ConfigFields) -> Dense:
    if f.flag("mlp_bias"):
        raise BadInput(f.at("mlp_bias"), True, "FFN biases are not modelled")
    return Dense(width=f.integer("intermediate_size"))


def gqa_dense(qkv_bias: bool = False, qk_norm: bool = False) -> Callable[[ConfigFields], Parts]:
    """Llama, Mistral, Qwen 2 and 3."""

    def parts(f: ConfigFields) -> Parts:
        windows = _windows(f, layer_count(f))
        by_window = {w: _gqa(f, qkv_bias=qkv_bias, qk_norm=qk_norm, window=w) for w in set(windows)}
        ffn = _dense(f)
        return [(by_window[w], ffn) for w in windows]

    return parts


def gqa_moe(f: ConfigFields) -> Parts:
    """Qwen3-MoE: every `decoder_sparse_step`-th layer is MoE, except `mlp_only_layers`."""
    windows = _windows(f, layer_count(f))
    by_window = {w: _gqa(f, qk_norm=True, window=w) for w in set(windows)}
    dense, moe = _dense(f), _moe(f)
    step, only_dense = f.integer("decoder_sparse_step", default=1), set(f.integers("mlp_only_layers"))
    sparse = [step > 0 and (i + 1) % step == 0 and i not in only_dense for i in range(len(windows))]
    return [(by_window[w], moe if s else dense) for w, s in zip(windows, sparse, strict=True)]


def mixtral(f: ConfigFields) -> Parts:
    """Mixtral: GQA; every layer is MoE, with experts of the intermediate size."""
    windows = _windows(f, layer_count(f))
    by_window = {w: _gqa(f, window=w) for w in set(windows)}
    moe = Moe(
        experts=f.integer("num_local_experts"),
        top_k=f.integer("num_experts_per_tok"),
        width=f.integer("intermediate_size"),
    )
    return [(by_window[w], moe) for w in windows]


def _moe(f: ConfigFields) -> Moe:
    width = f.integer("moe_intermediate_size")
    return Moe(
        experts=f.integer("n_routed_experts", "num_experts"),
        top_k=f.integer("num_experts_per_tok", "num_experts_per_token"),
        width=width,
        shared_width=width * f.integer("n_shared_experts", "num_shared_experts", default=0),
        latent_width=f.integer("routed_expert_hidden_size", default=0),
    )


def _first_dense(f: ConfigFields, count: int) -> list[Ffn]:
    """The first k layers are dense; of the others, those whose index `moe_layer_freq` divides are MoE."""
    dense, moe = _dense(f), _moe(f)
    first, every = f.integer("first_k_dense_replace", default=0), f.integer("moe_layer_freq", default=1)
    return [moe if every and i >= first and i % every == 0 else dense for i in range(count)]


def _mla(f: ConfigFields) -> Mla:
    if f.flag("attention_bias"):
        raise BadInput(f.at("attention_bias"), True, "MLA biases are not modelled")
    heads = f.integer("num_attention_heads")
    f.integer("num_key_value_heads", "head_dim", default=heads)  # unused: all heads read one latent
    f.get("head_dim")
    return Mla(
        heads=heads,
        q_rank=f.integer("q_lora_rank", default=0),
        kv_rank=f.integer("kv_lora_rank"),
        nope_dim=f.integer("qk_nope_head_dim"),
        rope_dim=f.integer("qk_rope_head_dim"),
        value_dim=f.integer("v_head_dim"),
        output_gate=f.flag("mla_use_output_gate"),
    )


def mla_moe(f: ConfigFields) -> Parts:
    """DeepSeek V3 and Kimi K2."""
    attention = _mla(f)
    return [(attention, ffn) for ffn in _first_dense(f, layer_count(f))]


def kimi_linear(f: ConfigFields) -> Parts:
    """Kimi Linear and K3: two 1-based lists say which layers are KDA and which are MLA."""
    count = layer_count(f)
    inner = f.inner("linear_attn_config")
    kda = Kda(
        heads=inner.integer("num_heads"),
        head_dim=inner.integer("head_dim"),
        conv_kernel=inner.integer("short_conv_kernel_size"),
        full_rank_gate=inner.flag("use_full_rank_gate"),
    )
    full, linear = set(inner.integers("full_attn_layers")), set(inner.integers("kda_layers"))
    inner.finish(frozenset({"gate_lower_bound"}))
    if full & linear or full | linear != set(range(1, count + 1)):
        raise BadInput(inner.place, None, f"kda_layers and full_attn_layers must name each of layers 1 to {count} once")
    mla = _mla(f)
    return [(mla if i + 1 in full else kda, ffn) for i, ffn in enumerate(_first_dense(f, count))]


def gated_delta(f: ConfigFields) -> Parts:
    """Qwen 3.5 and 3.6, dense: gated delta layers, with full attention at every n-th layer."""
    count = layer_count(f)
    every = f.integer("full_attention_interval", default=4)
    kinds = f.words("layer_types") or [
        "full_attention" if every and (i + 1) % every == 0 else "linear_attention" for i in range(count)
    ]
    if len(kinds) != count or not set(kinds) <= {"full_attention", "linear_attention"}:
        raise BadInput(
            f.at("layer_types"), None, f"must name full_attention or linear_attention for each of {count} layers"
        )
    delta = GatedDelta(
        key_heads=f.integer("linear_num_key_heads"),
        value_heads=f.integer("linear_num_value_heads"),
        key_dim=f.integer("linear_key_head_dim"),
        value_dim=f.integer("linear_value_head_dim"),
        conv_kernel=f.integer("linear_conv_kernel_dim"),
    )
    full, ffn = _gqa(f, qk_norm=True), _dense(f)
    return [(full if kind == "full_attention" else delta, ffn) for kind in kinds]


FAMILIES: dict[str, Callable[[ConfigFields], Parts]] = {
    "llama": gqa_dense(),
    "mistral": gqa_dense(),
    "qwen2": gqa_dense(qkv_bias=True),
    "qwen3": gqa_dense(qk_norm=True),
    "qwen3_moe": gqa_moe,
    "mixtral": mixtral,
    "deepseek_v3": mla_moe,
    "kimi_k2": mla_moe,
    "kimi_linear": kimi_linear,
    "qwen3_5_text": gated_delta,
}
