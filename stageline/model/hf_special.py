"""Readers of model types whose layers differ in more than traits: Llama 4, Gemma 4, MiMo V2, Step 3, biased norms."""

import msgspec

from stageline.errors import BadInput
from stageline.model.attention import Attention, Gqa
from stageline.model.ffn import Dense, Ffn
from stageline.model.hf_fields import ConfigFields
from stageline.model.hf_layers import (
    CHUNKED,
    FULL,
    SLIDING,
    LayerParts,
    Parts,
    Traits,
    attentions,
    check_kinds,
    dense,
    ffns,
    gqa,
    layer_count,
    moe,
    per_layer,
    sparse_layers,
)
from stageline.model.tensors import Tensor, tensor


def norm_vectors(count: int, hidden: int) -> tuple[Tensor, ...]:
    """Norms besides the two of a layer, or their biases."""
    return (tensor("more_norms", "norms", count * hidden),) if count else ()


def transformer(f: ConfigFields, traits: Traits) -> Parts:
    """GQA and a dense FFN or experts in every layer."""
    count, hidden = layer_count(f), f.positive("hidden_size")
    extra = norm_vectors(traits.extra_norms, hidden)
    found = attentions(f, count, traits)
    return Parts([LayerParts(a, b, extra) for a, b in zip(found, ffns(f, count, traits), strict=True)])


def overrides(f: ConfigFields, kinds: list[str], kind: str) -> ConfigFields:
    """The fields that per_layer_config gives to the first layer of a kind."""
    index = kinds.index(kind) if kind in kinds else -1
    found = f.inner("per_layer_config") if f.has("per_layer_config") else ConfigFields({}, f.at("per_layer_config"))
    return ConfigFields(found.get(str(index)) or {}, f"{found.place}.{index}")


def minimax_m2(f: ConfigFields, traits: Traits) -> Parts:
    """MiniMax M2: a transformer; its config still has the fields of its predecessors."""
    if not all(f.integers("attn_type_list")):
        raise BadInput(f.at("attn_type_list"), None, "linear attention is not part of this model type")
    f.unused("mlp_intermediate_size", "shared_moe_mode")
    return transformer(f, traits)


def biased_norms(f: ConfigFields, traits: Traits) -> Parts:
    """A transformer whose final norm has a bias too, and whose head may have one: Phi, Phi-MoE, Nemotron."""
    parts = transformer(f, traits)
    head = f.positive("vocab_size") * f.flag(
        "lm_head_bias", default=isinstance(parts.layers[0].ffn, Dense) and traits.bias
    )
    size = f.positive("hidden_size")
    return parts._replace(extra=(tensor("final_norm_bias", "norms", size), tensor("head_bias", "norms", head)))


def llama4(f: ConfigFields, traits: Traits) -> Parts:
    """Llama 4: attention within chunks, except in layers without rotary positions; some layers without experts."""
    count = layer_count(f)
    positions = f.integers("no_rope_layers")  # 1: with rotary positions
    every = f.integer("no_rope_layer_interval", default=4)
    if not positions:
        positions = [int(every == 0 or (i + 1) % every != 0) for i in range(count)]
    kinds = f.words("layer_types") or [CHUNKED if x and f.has("attention_chunk_size") else FULL for x in positions]
    kinds = per_layer(f, "layer_types", kinds, count)
    check_kinds(f, kinds, FULL, CHUNKED)
    f.unused("use_qk_norm", "attention_chunk_size", "attn_temperature_tuning", "for_llm_compressor")
    by_kind = {kind: gqa(f, traits, kind) for kind in set(kinds)}
    experts = msgspec.structs.replace(moe(f, traits), shared_width=f.positive("intermediate_size"))
    plain = dense(f, traits, "intermediate_size_mlp")
    f.unused("interleave_moe_layer_step")
    sparse = sparse_layers(f, count)
    return Parts([LayerParts(by_kind[k], experts if s else plain) for k, s in zip(kinds, sparse, strict=True)])


def gemma4(f: ConfigFields, traits: Traits) -> Parts:
    """Gemma 4: sliding and global layers of different heads; experts beside a dense FFN; per-layer embeddings."""
    count, hidden = layer_count(f), f.positive("hidden_size")
    kinds = f.words("layer_types") or [SLIDING if (i + 1) % 6 else FULL for i in range(count)]
    kinds = per_layer(f, "layer_types", kinds, count)
    check_kinds(f, kinds, FULL, SLIDING)
    kinds[-1] = FULL
    shared = f.integer("num_kv_shared_layers", default=0)
    own = {(kind, lent): _gemma4_attention(f, traits, kind, lent) for kind in (SLIDING, FULL) for lent in (False, True)}
    per_layer_width = f.integer("hidden_size_per_layer_input", default=0)
    routed = f.flag("enable_moe_block")
    norms = 2 + 3 * routed + (per_layer_width > 0)
    extra = norm_vectors(norms, hidden)
    if per_layer_width:
        extra += (tensor("per_layer_input", "attention_minor", 2 * hidden * per_layer_width),)
    layers = []
    for i, kind in enumerate(kinds):
        lent = i >= count - shared > 0
        layers.append(LayerParts(own[kind, lent], _gemma4_ffn(f, traits, routed, lent), extra))
    return _with_per_layer_inputs(f, Parts(layers), count * per_layer_width, hidden)


def _gemma4_attention(f: ConfigFields, traits: Traits, kind: str, lent: bool) -> Gqa:
    found = gqa(f, traits, kind)
    alike = f.flag("attention_k_eq_v") and kind == FULL
    heads, size = found.kv_heads, found.head_dim
    if kind == FULL:
        own = overrides(f, f.words("layer_types"), FULL)
        size = own.positive("head_dim", default=f.positive("global_head_dim", default=512))
        heads = f.positive("num_global_key_value_heads", default=heads) if alike else heads
        heads = own.positive("num_key_value_heads", default=heads)
        f.unused("num_global_key_value_heads")
    return msgspec.structs.replace(found, kv_heads=heads, head_dim=size, shared_kv_projection=alike, borrowed_kv=lent)


def _gemma4_ffn(f: ConfigFields, traits: Traits, routed: bool, lent: bool) -> Ffn:
    """Where experts are, the dense FFN works beside them, like a shared expert."""
    width = f.positive("intermediate_size")
    if routed:
        return msgspec.structs.replace(moe(f, traits), shared_width=width)
    f.unused("num_experts", "top_k_experts", "moe_intermediate_size")
    double = f.flag("use_double_wide_mlp") and lent
    return Dense(width=2 * width if double else width, gated=traits.gated)


def _with_per_layer_inputs(f: ConfigFields, parts: Parts, width: int, hidden: int) -> Parts:
    """Per-layer embeddings: a table for all layers, and a projection of the embedding."""
    vocab = f.integer("vocab_size_per_layer_input", default=0)
    if not width:
        return parts
    size = f.positive("hidden_size_per_layer_input")
    extra = (
        tensor("per_layer_embedding", "embedding", vocab * width, 0),
        tensor("per_layer_projection", "attention_minor", hidden * width),
        tensor("per_layer_norm", "norms", size),
    )
    return parts._replace(extra=extra, carried=width)


def gemma3n(f: ConfigFields, traits: Traits) -> Parts:
    """Gemma 3n: four residual streams (AltUp), a low-rank path beside every layer (Laurel), per-layer embeddings."""
    count, hidden = layer_count(f), f.positive("hidden_size")
    streams, rank = f.positive("altup_num_inputs", default=4), f.positive("laurel_rank", default=64)
    per_layer_width = f.positive("hidden_size_per_layer_input")
    widths = f.raw["intermediate_size"] if isinstance(f.raw.get("intermediate_size"), list) else None
    f.raw["intermediate_size"] = alike(f, "intermediate_size", count) if widths else f.raw.get("intermediate_size")
    shared = f.integer("num_kv_shared_layers", default=0)
    found = attentions(f, count, traits)
    mixed = streams * hidden + streams**3 + streams**2 + 2 * hidden  # router, prediction, correction; norm and scale
    extra = (
        tensor("altup", "router", mixed),
        tensor("laurel", "attention_minor", 2 * hidden * rank),
        tensor("per_layer_input", "attention_minor", 2 * hidden * per_layer_width),
        *norm_vectors(traits.extra_norms + 2, hidden),
    )
    kv = tensor("unused_kv", "attention_minor", 2 * hidden * found[0].kv_heads * found[0].head_dim)
    layers = []
    for i, attention in enumerate(found):
        lent = i >= count - shared > 0  # its own keys and values are in the checkpoint, and unused
        own = msgspec.structs.replace(attention, borrowed_kv=lent)
        layers.append(LayerParts(own, dense(f, traits), (*extra, kv) if lent else extra))
    f.unused("altup_active_idx", "altup_correct_scale", "activation_sparsity_pattern", "rope_local_base_freq")
    parts = _with_per_layer_inputs(f, Parts(layers), count * per_layer_width, hidden)
    joined = tensor("altup_projections", "attention_minor", 2 * (streams - 1) * hidden * hidden)
    return parts._replace(extra=(*parts.extra, joined), streams=streams)


def alike(f: ConfigFields, name: str, count: int) -> int | None:
    """A field with one number for all layers, or a list with the same number for each. Raises BadInput."""
    value = f.get(name)
    if not isinstance(value, list):
        return f.integer(name, default=0) if value is not None else None
    numbers = f.integers(name)
    if len(numbers) != count or len(set(numbers)) != 1:
        raise BadInput(f.at(name), len(numbers), f"expected the same number for each of {count} layers")
    return numbers[0]


def hunyuan_moe(f: ConfigFields, traits: Traits) -> Parts:
    """Hunyuan MoE: a transformer whose config lists sizes by layer."""
    count = layer_count(f)
    for name in ("moe_topk", "moe_intermediate_size", "num_shared_expert"):
        f.raw[name] = alike(f, name, count)
    f.raw["first_k_dense_replace"] = f.integer("moe_layer_num_skipped", default=0)
    if f.flag("use_cla"):
        raise BadInput(f.at("use_cla"), True, "attention shared across layers is not modelled for this type")
    f.unused("cla_share_factor", "dense_list", "num_media_embeds", "org_vocab_size", "use_mixed_mlp_moe", "moe_topk")
    return transformer(f, traits)


def starcoder2(f: ConfigFields, traits: Traits) -> Parts:
    """StarCoder 2: biases everywhere, or nowhere."""
    if not f.flag("use_bias", default=True):
        traits = traits._replace(qkv_bias=False, bias=False)
    return biased_norms(f, traits)


def mimo_v2(f: ConfigFields, traits: Traits) -> Parts:
    """MiMo V2: sliding layers with sinks and heads of their own; keys wider than values."""
    count = layer_count(f)
    pattern = [SLIDING if x else FULL for x in f.integers("hybrid_layer_pattern")] or f.words("layer_types")
    if not pattern:
        pattern = [SLIDING if i and (i + 1) % 6 else FULL for i in range(count)]
    kinds = per_layer(f, "hybrid_layer_pattern", pattern, count)
    check_kinds(f, kinds, FULL, SLIDING)
    full = msgspec.structs.replace(gqa(f, traits, FULL), sinks=f.flag("add_full_attention_sink_bias"))
    window = Gqa(
        heads=f.positive("swa_num_attention_heads", default=full.heads),
        kv_heads=f.positive("swa_num_key_value_heads", default=2 * full.kv_heads),
        head_dim=f.positive("swa_head_dim", default=full.head_dim),
        value_dim=f.integer("swa_v_head_dim", default=full.value_dim),
        qkv_bias=full.qkv_bias,
        sinks=f.flag("add_swa_attention_sink_bias", default=True),
        window_tokens=f.positive("sliding_window", "sliding_window_size"),
    )
    f.unused("attention_chunk_size", "layer_types")
    by_kind: dict[str, Attention] = {FULL: full, SLIDING: window}
    found = ffns(f, count, traits)
    return Parts([LayerParts(by_kind[k], x) for k, x in zip(kinds, found, strict=True)])


def step3(f: ConfigFields, traits: Traits) -> Parts:
    """Step 3.5 and 3.7: gated heads; sliding layers may have more of them; the first three layers are dense."""
    count = layer_count(f)
    kinds = f.words("layer_types") or [FULL] * count
    kinds = per_layer(f, "layer_types", kinds, count)
    check_kinds(f, kinds, FULL, SLIDING)
    other = f.inner("attention_other_setting") if f.has("attention_other_setting") else ConfigFields({}, f.place)
    f.unused("use_head_wise_attn_gate", "use_qk_norm", "zero_centered", "head_dim")
    full = gqa(f, traits, FULL)
    by_kind: dict[str, Attention] = {FULL: full}
    if SLIDING in kinds:
        heads = f.positive("num_sliding_attention_heads", default=full.heads)
        heads = overrides(f, kinds, SLIDING).positive("num_attention_heads", default=heads)
        by_kind[SLIDING] = Gqa(
            heads=other.positive("num_attention_heads", default=heads),
            kv_heads=other.positive("num_attention_groups", "num_key_value_heads", default=full.kv_heads),
            head_dim=other.positive("head_dim", default=full.head_dim),
            qkv_bias=full.qkv_bias,
            o_bias=full.o_bias,
            qk_norm=True,
            head_gate=True,
            window_tokens=f.positive("sliding_window"),
        )
    sparse = sparse_layers(f, count)
    if not f.has("mlp_layer_types", "moe_layers_enum", "first_k_dense_replace"):
        sparse = [i >= 3 for i in range(count)]
    plain, experts = dense(f, traits), moe(f, traits)
    return Parts([LayerParts(by_kind[k], experts if s else plain) for k, s in zip(kinds, sparse, strict=True)])
