"""Reads model types that mix kinds of layers: linear attention, state-space layers, layers of one part alone."""

from fractions import Fraction

import msgspec

from stageline.errors import BadInput
from stageline.model.attention import Attention, GatedDelta, Gqa, Kda, Lightning, Mamba, Mamba2, Parallel
from stageline.model.attention_kind import NoAttention
from stageline.model.check import MAX_LAYERS
from stageline.model.ffn import Dense, Ffn, Moe, NoFfn
from stageline.model.hf_fields import ConfigFields
from stageline.model.hf_latent import mla
from stageline.model.hf_layers import (
    FULL,
    LayerParts,
    Parts,
    Traits,
    check_kinds,
    dense,
    ffns,
    gqa,
    layer_count,
    moe,
    per_layer,
)
from stageline.model.tensors import Tensor, tensor

LINEAR = "linear_attention"
NAS_MULTIPLE = 256  # FFN widths of a searched architecture are rounded up to it


def kimi_linear(f: ConfigFields, traits: Traits) -> Parts:
    """Kimi Linear and K3: two 1-based lists say which layers are KDA and which are MLA."""
    count = layer_count(f)
    inner = f.inner("linear_attn_config") if f.has("linear_attn_config") else f
    kda = Kda(
        heads=inner.positive("num_heads", "linear_num_heads"),
        head_dim=inner.positive("head_dim") if inner is not f else f.positive("linear_head_dim"),
        conv_kernel=inner.positive("short_conv_kernel_size", "linear_conv_kernel_dim"),
        full_rank_gate=inner.flag("use_full_rank_gate"),
    )
    kinds = f.words("layer_types")
    full, linear = set(inner.integers("full_attn_layers")), set(inner.integers("kda_layers"))
    if inner is f:
        full = {i + 1 for i, kind in enumerate(kinds) if kind == FULL}
        linear = {i + 1 for i, kind in enumerate(kinds) if kind == LINEAR}
    inner.unused("gate_lower_bound")
    if inner is not f:
        inner.finish()
    if full & linear or full | linear != set(range(1, count + 1)):
        raise BadInput(inner.place, None, f"kda_layers and full_attn_layers must name each of layers 1 to {count} once")
    latent = mla(f)
    found = ffns(f, count, traits)
    return Parts([LayerParts(latent if i + 1 in full else kda, ffn) for i, ffn in enumerate(found)])


def gated_delta(f: ConfigFields, traits: Traits) -> Parts:
    """Qwen3-Next, Qwen 3.5 and 3.6: gated delta layers, with full attention at every n-th layer."""
    count = layer_count(f)
    every = f.integer("full_attention_interval", default=4)
    kinds = f.words("layer_types") or [FULL if every and (i + 1) % every == 0 else LINEAR for i in range(count)]
    if len(kinds) != count or not set(kinds) <= {FULL, LINEAR}:
        raise BadInput(f.at("layer_types"), None, f"must name {FULL} or {LINEAR} for each of {count} layers")
    by_kind: dict[str, Attention] = {FULL: gqa(f, traits)}
    if LINEAR in kinds:
        by_kind[LINEAR] = GatedDelta(
            key_heads=f.positive("linear_num_key_heads"),
            value_heads=f.positive("linear_num_value_heads"),
            key_dim=f.positive("linear_key_head_dim"),
            value_dim=f.positive("linear_value_head_dim"),
            conv_kernel=f.positive("linear_conv_kernel_dim"),
        )
    return Parts([LayerParts(by_kind[k], x) for k, x in zip(kinds, ffns(f, count, traits), strict=True)])


def minimax(f: ConfigFields, traits: Traits) -> Parts:
    """MiniMax-Text-01 and M1: lightning attention, with full attention where the list says 1; experts everywhere."""
    count = layer_count(f)
    listed = [FULL if x else LINEAR for x in f.integers("attn_type_list")] or f.words("layer_types")
    kinds = per_layer(f, "layer_types", listed or [LINEAR if (i + 1) % 2 else FULL for i in range(count)], count)
    full = gqa(f, traits)
    by_kind: dict[str, Attention] = {FULL: full, LINEAR: Lightning(heads=full.heads, head_dim=full.head_dim)}
    f.unused("layer_types", "block_size", "postnorm", "shared_moe_mode", "layernorm_mlp_alpha", "layernorm_mlp_beta")
    f.unused(*(f"{name}_factor" for name in ("full_attn_alpha", "full_attn_beta", "mlp_alpha", "mlp_beta")))
    f.unused("linear_attn_alpha_factor", "linear_attn_beta_factor")
    check_kinds(f, kinds, *by_kind)
    return Parts([LayerParts(by_kind[k], x) for k, x in zip(kinds, ffns(f, count, traits), strict=True)])


PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
BLOCKS = {"linear_attention": "mamba", "full_attention": "attention"} | {name: name for name in PATTERN.values()}


def _blocks(f: ConfigFields) -> list[str]:
    """What each layer of a Nemotron-H consists of."""
    pattern, names = f.text("hybrid_override_pattern"), f.words("layers_block_type") or f.words("layer_types")
    f.unused("layers_block_type", "layer_types")
    found = [PATTERN.get(c, c) for c in pattern] if pattern else [BLOCKS.get(name, name) for name in names]
    place = f.at("hybrid_override_pattern" if pattern or not names else "layers_block_type")
    unknown = sorted(set(found) - set(PATTERN.values()))
    if unknown or not 1 <= len(found) <= MAX_LAYERS:
        known = f"known: {', '.join(f'{c} ({name})' for c, name in PATTERN.items())}"
        raise BadInput(place, unknown[0] if unknown else len(found), "must name what each layer consists of", known)
    if f.integer("num_hidden_layers", default=len(found)) != len(found):
        raise BadInput(place, len(found), f"the model has {f.integer('num_hidden_layers')} layers")
    return found


def nemotron_h(f: ConfigFields, traits: Traits) -> Parts:
    """Nemotron-H and Nemotron 3: every layer is a Mamba-2 block, attention, an FFN or experts, alone."""
    blocks = _blocks(f)
    by_block: dict[str, LayerParts] = {}
    for block in dict.fromkeys(blocks):
        attention: Attention = NoAttention()
        ffn: Ffn = NoFfn()
        if block == "mamba":
            attention = _mamba2(f)
        elif block == "attention":
            attention = gqa(f, traits)
        elif block == "moe":
            ffn = _nemotron_moe(f, traits)
        else:
            ffn = dense(f, traits)
        by_block[block] = LayerParts(attention, ffn)
    f.unused(*_UNUSED_BY_SOME)
    return Parts([by_block[block] for block in blocks])


_UNUSED_BY_SOME = (
    *("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "attention_head_dim"),
    *("moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_shared_experts", "n_routed_experts"),
    *("num_experts_per_tok", "mlp_bias", "attention_bias", "expand", "mamba_expand", "sliding_window", "chunk_size"),
    *("mamba_proj_bias", "mamba_num_groups", "moe_latent_size", "use_mamba_kernels", "mamba_hidden_act"),
)


def _mamba2(f: ConfigFields) -> Mamba2:
    return Mamba2(
        heads=f.positive("mamba_num_heads", "mamba_n_heads"),
        head_dim=f.positive("mamba_head_dim", "mamba_d_head"),
        state_dim=f.positive("ssm_state_size", "mamba_d_state"),
        groups=f.positive("n_groups", "mamba_n_groups", default=8),
        conv_kernel=f.positive("conv_kernel", "mamba_d_conv", default=4),
        conv_bias=f.flag("use_conv_bias", default=f.flag("mamba_conv_bias", default=True)),
        bias=f.flag("use_bias", default=f.flag("mamba_proj_bias")),
    )


def granite_hybrid(f: ConfigFields, traits: Traits) -> Parts:
    """Granite 4: Mamba-2 or attention, and behind either experts with a shared one, or a dense FFN of its width."""
    count = layer_count(f)
    kinds = per_layer(f, "layer_types", f.words("layer_types") or ["mamba"] * count, count)
    check_kinds(f, kinds, "mamba", "attention")
    by_kind: dict[str, Attention] = {"attention": gqa(f, traits)}
    if "mamba" in kinds:
        by_kind["mamba"] = _mamba2(f)
    width = f.positive("shared_intermediate_size")
    if f.integer("num_local_experts", default=0):
        ffn: Ffn = msgspec.structs.replace(moe(f, traits), shared_width=width)
    else:
        ffn = Dense(width=width)
    f.unused("intermediate_size", "num_experts_per_tok", "mamba_expand", "mamba_chunk_size", "use_mamba_kernels")
    return Parts([LayerParts(by_kind[kind], ffn) for kind in kinds])


def falcon_h1(f: ConfigFields, traits: Traits) -> Parts:
    """Falcon-H1: attention and Mamba-2 side by side in every layer, and a dense FFN."""
    heads, hidden = f.positive("mamba_n_heads"), f.positive("hidden_size")
    width = f.positive("mamba_d_ssm", default=f.positive("mamba_expand", default=2) * hidden)
    dim = width // heads
    if isinstance(f.get("mamba_d_head"), int):
        dim = f.positive("mamba_d_head")
    if dim * heads != width:
        raise BadInput(f.at("mamba_d_head"), dim, f"{heads} heads of it are not mamba_d_ssm {width}")
    if f.flag("projectors_bias"):
        raise BadInput(f.at("projectors_bias"), "true", "biases of the output projections are not modelled")
    state_space = Mamba2(
        heads=heads,
        head_dim=dim,
        state_dim=f.positive("mamba_d_state"),
        groups=f.positive("mamba_n_groups", default=1),
        conv_kernel=f.positive("mamba_d_conv", default=4),
        conv_bias=f.flag("mamba_conv_bias", default=True),
        norm=f.flag("mamba_rms_norm"),
    )
    if f.flag("mamba_proj_bias"):
        raise BadInput(f.at("mamba_proj_bias"), "true", "biases of the input projection are not modelled")
    f.unused("mamba_expand", "mamba_d_head", "mamba_chunk_size", "mamba_use_mlp", "mlp_expansion_factor")
    f.unused("attn_layer_indices", "mlp_multipliers", "ssm_multipliers", "mamba_norm_before_gate")
    part = LayerParts(Parallel(attention=gqa(f, traits), state_space=state_space), dense(f, traits))
    return Parts([part] * layer_count(f))


def jamba(f: ConfigFields, traits: Traits) -> Parts:
    """Jamba: Mamba, or attention in every attn_layer_period-th layer; and a dense FFN, or experts of its width."""
    count, hidden = layer_count(f), f.positive("hidden_size")
    every, first = f.positive("attn_layer_period", default=8), f.integer("attn_layer_offset", default=4)
    sparse, first_sparse = f.positive("expert_layer_period", default=2), f.integer("expert_layer_offset", default=1)
    rank = -(-hidden // 16) if f.get("mamba_dt_rank") in (None, "auto") else f.positive("mamba_dt_rank")
    mamba = Mamba(
        width=f.positive("mamba_expand", default=2) * hidden,
        state_dim=f.positive("mamba_d_state", default=16),
        step_rank=rank,
        conv_kernel=f.positive("mamba_d_conv", default=4),
        conv_bias=f.flag("mamba_conv_bias", default=True),
        bias=f.flag("mamba_proj_bias"),
        norms=True,
    )
    attention, plain = gqa(f, traits), dense(f, traits)
    experts: Ffn = moe(f, traits) if f.positive("num_experts", default=16) > 1 else plain
    f.unused("mamba_dt_rank", "use_mamba_kernels", "num_experts_per_tok", "layers_block_type", "sliding_window")
    return Parts(
        [
            LayerParts(attention if i % every == first else mamba, experts if i % sparse == first_sparse else plain)
            for i in range(count)
        ]
    )


def _nemotron_moe(f: ConfigFields, traits: Traits) -> Moe:
    width = f.positive("moe_intermediate_size")
    shared = f.positive("moe_shared_expert_intermediate_size", default=width)
    return Moe(
        experts=f.positive("n_routed_experts", "num_local_experts"),
        top_k=f.positive("num_experts_per_tok"),
        width=width,
        shared_width=shared if f.integer("n_shared_experts", default=1) else 0,
        latent_width=f.integer("moe_latent_size", default=0),
        gated=traits.gated,
    )


def nemotron_nas(f: ConfigFields, traits: Traits) -> Parts:
    """Nemotron Super and Ultra: a searched architecture, whose block_configs describe every layer."""
    del traits
    count, hidden = layer_count(f), f.positive("hidden_size")
    blocks = f.objects("block_configs")
    if len(blocks) != count:
        raise BadInput(f.at("block_configs"), len(blocks), f"the model has {count} layers")
    f.unused("intermediate_size", "num_key_value_heads")
    return Parts([_nas_block(f, block, hidden) for block in blocks])


def _nas_block(f: ConfigFields, block: ConfigFields, hidden: int) -> LayerParts:
    extra: tuple[Tensor, ...] = ()
    inner = block.inner("attention")
    attention: Attention = NoAttention()
    if inner.flag("replace_with_linear"):
        extra += (tensor("linear", "attention_minor", hidden * hidden + hidden),)  # with the norm that was attention's
    elif not inner.flag("no_op"):
        attention = _nas_attention(f, inner)
    part = block.inner("ffn")
    ffn: Ffn = NoFfn()
    if part.flag("replace_with_linear"):
        extra += (tensor("linear_ffn", "attention_minor", hidden * hidden + hidden),)
    elif not part.flag("no_op"):
        ffn = Dense(width=_nas_width(part, hidden), bias=f.flag("mlp_bias"))
    for fields in (inner, part):
        if fields.get("sparsify"):
            raise BadInput(fields.at("sparsify"), None, "sparse weights are not modelled")
        fields.finish()
    block.finish()
    return LayerParts(attention, ffn, extra)


def _nas_attention(f: ConfigFields, inner: ConfigFields) -> Gqa:
    heads = f.positive("num_attention_heads")
    group = inner.positive("n_heads_in_group", default=heads // inner.positive("num_key_value_heads", default=heads))
    if heads % group:
        raise BadInput(inner.at("n_heads_in_group"), group, f"must divide the {heads} heads")
    bias = f.flag("attention_bias")
    return Gqa(
        heads=heads,
        kv_heads=heads // group,
        head_dim=f.positive("head_dim", default=f.positive("hidden_size") // heads),
        qkv_bias=bias,
        o_bias=bias,
        window_tokens=inner.integer("window_length", default=0) + inner.integer("num_sink_tokens", default=0),
    )


def _nas_width(part: ConfigFields, hidden: int) -> int:
    """intermediate_size, or 2/3 x ffn_mult x hidden, rounded up to a multiple of 256."""
    if part.has("intermediate_size"):
        return part.positive("intermediate_size")
    mult = part.get("ffn_mult")
    if isinstance(mult, bool) or not isinstance(mult, (int, float)) or not 0 < mult < 1 << 20:
        raise BadInput(part.at("ffn_mult"), None, "expected a positive number")
    width = int(Fraction(mult) * 2 * hidden / 3)
    return -(-width // NAS_MULTIPLE) * NAS_MULTIPLE
