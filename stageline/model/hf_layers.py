"""Reads attention, FFN and the kind of every layer from the fields that most Hugging Face model types share."""

from typing import NamedTuple

from stageline.errors import BadInput
from stageline.model.attention import Attention, Gqa
from stageline.model.check import MAX_LAYERS
from stageline.model.ffn import Dense, Ffn, Moe
from stageline.model.hf_fields import ConfigFields
from stageline.model.tensors import Tensor

EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_top_k",
    "moe_topk",
    "moe_k",
)
EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
SHARED_WIDTH = ("shared_expert_intermediate_size", "share_expert_dim", "share_expert_dims", "shared_intermediate_size")
SLIDING, CHUNKED, FULL = "sliding_attention", "chunked_attention", "full_attention"


class LayerParts(NamedTuple):
    """One layer, without its weight formats."""

    attention: Attention
    ffn: Ffn
    extra: tuple[Tensor, ...] = ()


class Parts(NamedTuple):
    """All layers of a model, and what there is besides."""

    layers: list[LayerParts]
    extra: tuple[Tensor, ...] = ()  # weights outside the layers
    streams: int = 1  # of the residual
    carried: int = 0  # elements per token that cross every boundary besides
    routed_format: str | None = None  # of routed experts, if not the quantisation's


class Traits(NamedTuple):
    """What the code of a model type fixes and its config does not say."""

    qkv_bias: bool = False  # if the config does not say
    always_qkv_bias: bool = False
    o_bias: bool = True  # the output has a bias where q, k and v have
    qk_norm: bool = False
    qk_norm_all_heads: bool = False
    sinks: bool = False
    head_gate: bool = False
    output_gate: bool = False  # if the config does not say
    extra_norms: int = 0  # vectors of the hidden size besides the two norms of a layer
    gated: bool = True
    bias: bool = False  # of FFN and experts, if the config does not say
    shared_gate: bool = False
    experts: bool = False  # every model of the type has them
    tied: bool = False  # if the config does not say
    window: bool = True  # `sliding_window` counts if `use_sliding_window` is absent
    pattern: int = 0  # every n-th layer is full; 0: a window is every layer's


def layer_count(f: ConfigFields) -> int:
    """num_hidden_layers. Raises BadInput past MAX_LAYERS."""
    count = f.integer("num_hidden_layers", "num_layers")
    if not 1 <= count <= MAX_LAYERS:
        raise BadInput(f.at("num_hidden_layers"), count, f"a model has 1 to {MAX_LAYERS} layers")
    return count


def predicted_layers(f: ConfigFields) -> int:
    """Layers for multi-token prediction, which the checkpoint holds beside the model's."""
    count = f.integer(
        "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers", default=0
    )
    modules = f.integer("num_mtp_modules", default=0) * f.integer("mtp_transformer_layers", default=1)
    return count or (modules if f.flag("use_mtp", default=True) else 0)


def per_layer(f: ConfigFields, name: str, found: list[str], count: int) -> list[str]:
    """A list with one entry per layer; entries of multi-token-prediction layers may follow. Raises BadInput."""
    if len(found) not in (count, count + predicted_layers(f)):
        raise BadInput(f.at(name), len(found), f"the model has {count} layers")
    return found[:count]


def attention_kinds(f: ConfigFields, count: int, traits: Traits) -> list[str]:
    """ "full_attention", "sliding_attention" or another kind for every layer."""
    window = f.integer("sliding_window", "sliding_window_size", default=0)
    if 0 < f.integer("max_position_embeddings", default=0) <= window:
        window = 0
    names = ("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")
    pattern = next((found for found in [f.get(name) for name in names] if found), None)
    kinds, used = f.words("layer_types"), f.flag("use_sliding_window", default=traits.window)
    if kinds:
        kinds = per_layer(f, "layer_types", kinds, count)
        return [FULL if kind == SLIDING and not (window and used) else kind for kind in kinds]
    if not window or not used:
        return [FULL] * count
    if isinstance(pattern, str):  # "LLLG"
        return [SLIDING if pattern[i % len(pattern)] == "L" else FULL for i in range(count)]
    every = pattern if isinstance(pattern, int) and pattern > 0 else traits.pattern
    if every:
        return [SLIDING if (i + 1) % every else FULL for i in range(count)]
    full = f.integer("max_window_layers", default=0) if f.has("use_sliding_window") else 0
    return [SLIDING if i >= full else FULL for i in range(count)]


def gqa(f: ConfigFields, traits: Traits, kind: str = FULL) -> Gqa:
    """The grouped-query attention of a layer of this kind."""
    heads = f.positive("num_attention_heads")
    bias = f.flag("attention_bias", default=f.flag("qkv_bias", default=f.flag("use_qkv_bias", default=traits.qkv_bias)))
    bias = bias or traits.always_qkv_bias
    all_heads = traits.qk_norm_all_heads and f.flag("use_qk_norm", default=True)
    return Gqa(
        heads=heads,
        kv_heads=f.positive("num_key_value_heads", "num_attention_groups", default=heads),
        head_dim=f.positive("head_dim", "attention_head_dim", default=f.positive("hidden_size") // heads),
        value_dim=f.integer("v_head_dim", default=0),
        qkv_bias=bias,
        o_bias=f.flag("attention_out_bias", default=bias and traits.o_bias),
        qk_norm=not all_heads and f.flag("use_qk_norm", default=traits.qk_norm),
        qk_norm_all_heads=all_heads,
        output_gate=f.flag("attn_output_gate", default=traits.output_gate),
        head_gate=traits.head_gate,
        sinks=traits.sinks,
        window_tokens=f.positive("sliding_window", "sliding_window_size") if kind == SLIDING else 0,
        chunk_tokens=f.positive("attention_chunk_size") if kind == CHUNKED else 0,
    )


def check_kinds(f: ConfigFields, kinds: list[str], *known: str) -> None:
    """Refuse a kind of layer that the model type does not have. Raises BadInput."""
    unknown = sorted(set(kinds) - set(known))
    if unknown:
        way_out = f"known: {', '.join(known)}"
        raise BadInput(f.at("layer_types"), unknown[0], "not modelled for this model type", way_out)


def attentions(f: ConfigFields, count: int, traits: Traits) -> list[Gqa]:
    """The grouped-query attention of every layer. Raises BadInput for a kind that is none."""
    kinds = attention_kinds(f, count, traits)
    check_kinds(f, kinds, FULL, SLIDING, CHUNKED)
    by_kind = {kind: gqa(f, traits, kind) for kind in set(kinds)}
    return [by_kind[kind] for kind in kinds]


def dense(f: ConfigFields, traits: Traits = Traits(), *names: str) -> Dense:  # noqa: B008  (immutable)
    """A dense FFN of intermediate_size, or of the first of these fields."""
    bias = f.flag("mlp_bias", default=traits.bias)
    return Dense(width=f.positive(*names, "intermediate_size", "ffn_hidden_size"), gated=traits.gated, bias=bias)


def moe(f: ConfigFields, traits: Traits = Traits()) -> Moe:  # noqa: B008  (immutable)
    """A mixture of experts, as wide as the model type says."""
    width = f.positive(*EXPERT_WIDTH, "intermediate_size")
    shared = f.integer(*SHARED, default=int(f.has(*SHARED_WIDTH)))
    shared_width = shared * f.integer(*SHARED_WIDTH, default=width)
    return Moe(
        experts=f.positive(*EXPERTS),
        top_k=f.positive(*TOP_K),
        width=width,
        shared_width=shared_width,
        latent_width=f.integer("routed_expert_hidden_size", "moe_latent_size", default=0),
        shared_gate=traits.shared_gate and shared_width > 0,
        gated=traits.gated,
        bias=traits.bias,
    )


def _listed_layers(f: ConfigFields, name: str) -> set[int]:
    """Layers in a list, or in a text such as "3,4,5". Raises BadInput."""
    if not isinstance(f.get(name), str):
        return set(f.integers(name))
    words = [word.strip() for word in str(f.text(name)).split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        raise BadInput(f.at(name), f.text(name), 'expected layers, such as "3,4,5"')
    return {int(word) for word in words}


def sparse_layers(f: ConfigFields, count: int) -> list[bool]:
    """Which layers have experts, from whichever of the fields is there; all of them without one."""
    kinds = f.words("mlp_layer_types")
    if kinds:
        return [kind != "dense" for kind in per_layer(f, "mlp_layer_types", kinds, count)]
    freq = f.get("moe_layer_freq")
    if isinstance(freq, list):
        return [bool(x) for x in per_layer(f, "moe_layer_freq", freq, count)]
    listed = _listed_layers(f, "moe_layers_enum") or _listed_layers(f, "moe_layers")
    if listed:
        return [i in listed for i in range(count)]
    first = f.integer("first_k_dense_replace", "moe_layer_start_index", default=0)
    every = f.integer("moe_layer_freq", "moe_layer_interval", default=1)
    last = f.raw.get("moe_layer_end_index")
    f.unused("moe_layer_end_index")
    last = last if isinstance(last, int) and last >= 0 else count - 1
    step = f.integer("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    only_dense = set(f.integers("mlp_only_layers"))
    return [
        first <= i <= last and every > 0 and i % every == 0 and step > 0 and (i + 1) % step == 0 and i not in only_dense
        for i in range(count)
    ]


def ffns(f: ConfigFields, count: int, traits: Traits, *dense_width: str) -> list[Ffn]:
    """The FFN of every layer: dense, or a mixture of experts where the config has experts."""
    if not f.integer(*EXPERTS, default=None if traits.experts else 0):
        return [dense(f, traits, *dense_width)] * count
    sparse = sparse_layers(f, count)
    f.unused("intermediate_size", *dense_width)
    some = dense(f, traits, *dense_width) if not all(sparse) else None
    experts = moe(f, traits) if any(sparse) else None
    return [x for s in sparse if (x := experts if s else some)]
