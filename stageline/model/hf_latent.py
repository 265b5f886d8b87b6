"""Reads model types with multi-head latent attention (DeepSeek, Kimi K2, GLM-5) and its compressed successor."""

from stageline.errors import BadInput
from stageline.model.attention import Attention, Compressed, Mla
from stageline.model.hf_fields import ConfigFields
from stageline.model.hf_layers import (
    LayerParts,
    Parts,
    Traits,
    ffns,
    layer_count,
    moe,
    predicted_layers,
)
from stageline.model.tensors import tensor

COMPRESSION = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def mla(f: ConfigFields, indexed: bool = True) -> Mla:
    """The latent attention of a layer; with index_topk only some tokens are read."""
    heads = f.positive("num_attention_heads")
    f.unused("num_key_value_heads", "head_dim", "qk_head_dim")  # all heads read one latent
    top_k = f.integer("index_topk", default=0)
    own = bool(top_k) and indexed
    index_heads, index_dim = (f.positive("index_n_heads"), f.positive("index_head_dim")) if top_k else (0, 0)
    return Mla(
        heads=heads,
        q_rank=f.integer("q_lora_rank", default=0),
        kv_rank=f.positive("kv_lora_rank"),
        nope_dim=f.positive("qk_nope_head_dim"),
        rope_dim=f.positive("qk_rope_head_dim"),
        value_dim=f.positive("v_head_dim"),
        output_gate=f.flag("mla_use_output_gate"),
        bias=f.flag("attention_bias"),
        index_heads=index_heads * own,
        index_dim=index_dim * own,
        index_top_k=top_k,
    )


def _indexers(f: ConfigFields, count: int) -> list[bool]:
    """Whether a layer has an indexer, or uses an earlier layer's choice."""
    kinds, pattern = f.words("indexer_types"), f.text("index_topk_pattern")
    freq, offset = f.integer("index_topk_freq", default=1), f.integer("index_skip_topk_offset", default=2)
    if kinds or pattern:
        found = [kind in ("full", "F") for kind in (kinds or list(pattern or ""))]
    else:
        found = [max(i - offset + 1, 0) % max(freq, 1) == 0 for i in range(count)]
    if len(found) != count or not found[0]:
        raise BadInput(f.at("indexer_types"), len(found), f"must name {count} layers, the first with an indexer")
    return found


def mla_moe(f: ConfigFields, traits: Traits) -> Parts:
    """DeepSeek V2 to V3.2, Kimi K2, GLM-5, GLM-4.7-Flash: latent attention, dense and sparse layers."""
    count = layer_count(f)
    own = _indexers(f, count)
    f.unused("layer_types")  # every layer attends alike
    kinds = {indexed: mla(f, indexed) for indexed in set(own)}
    return Parts([LayerParts(kinds[o], x) for o, x in zip(own, ffns(f, count, traits), strict=True)])


def _ratios(f: ConfigFields, count: int) -> list[int]:
    """Tokens per compressed entry of every layer; 0: a sliding window alone."""
    ratios = f.integers("compress_ratios")
    if not ratios:
        rates = f.get("compress_rates") or {}
        names = f.words("layer_types")
        if not names:
            names = ["heavily_compressed_attention"] * min(count, 2)
            names += [("heavily_compressed_attention", "compressed_sparse_attention")[i % 2] for i in range(count - 2)]
        unknown = set(names) - set(COMPRESSION)
        if unknown or not isinstance(rates, dict):
            raise BadInput(f.at("layer_types"), str(sorted(unknown)), f"known: {', '.join(COMPRESSION)}")
        ratios = [int(rates.get(name, COMPRESSION[name])) for name in names]
    if len(ratios) not in (count, count + predicted_layers(f)) or min(ratios) < 0:
        raise BadInput(f.at("compress_ratios"), len(ratios), f"the model has {count} layers")
    return ratios[:count]


def deepseek_v4(f: ConfigFields, traits: Traits) -> Parts:
    """DeepSeek V4: compressed attention, with an indexer at the smallest ratio; experts everywhere; several streams."""
    del traits
    count, hidden = layer_count(f), f.positive("hidden_size")
    ratios = _ratios(f, count)
    chosen = min((r for r in ratios if r), default=0)
    kinds: dict[int, Attention] = {r: _compressed(f, r, r == chosen) for r in set(ratios)}
    experts = moe(f)
    streams = f.positive("hc_mult", default=4)
    mixed = streams * (streams + 2)
    extra = (tensor("hyper_connections", "router", 2 * (mixed * streams * hidden + mixed + 3)),)
    f.unused("num_key_value_heads", "intermediate_size", "compress_rates", "layer_types", "mlp_layer_types")
    f.unused("n_hash_layers", "hc_sinkhorn_iters")
    dtype = f.text("expert_dtype")
    if dtype not in (None, "fp4", "fp8", "bf16"):
        raise BadInput(f.at("expert_dtype"), dtype, "this format is not modelled", "known: fp4, fp8, bf16")
    return Parts(
        [LayerParts(kinds[r], experts, extra) for r in ratios],
        extra=(tensor("hyper_head", "router", streams * streams * hidden + streams + 1),),
        streams=streams,
        routed_format="mxfp4-w4a8" if dtype == "fp4" else None,
    )


def _compressed(f: ConfigFields, ratio: int, indexed: bool) -> Compressed:
    index = {"index_heads": "index_n_heads", "index_dim": "index_head_dim", "index_top_k": "index_topk"}
    found = {name: f.positive(field) for name, field in index.items()}
    return Compressed(
        heads=f.positive("num_attention_heads"),
        head_dim=f.positive("head_dim"),
        q_rank=f.positive("q_lora_rank"),
        o_rank=f.positive("o_lora_rank"),
        o_groups=f.positive("o_groups"),
        window_tokens=f.positive("sliding_window"),
        ratio=ratio,
        **(found if ratio and indexed else {}),
    )
