"""Checks that every model must pass, from the catalogue or from a config.json."""

import msgspec

from stageline.errors import BadInput
from stageline.model.attention import AttentionKind, Compressed, Gqa
from stageline.model.ffn import Moe
from stageline.model.spec import ModelSpec

MAX_LAYERS = 4096
MAX_SIZE = 1 << 40  # larger than any size of a model; keeps sums within what a plan can hold


def _positive(struct: msgspec.Struct, optional: frozenset[str], place: str) -> None:
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if not (0 if name in optional else 1) <= value <= MAX_SIZE:
            raise BadInput(f"{place}.{name}", value, "out of range", "sizes are positive integers")


OPTIONAL = frozenset({"window_tokens", "chunk_tokens", "q_rank", "shared_width", "latent_width", "value_dim", "ratio"})
OPTIONAL |= {"index_heads", "index_dim", "index_top_k"}
OPTIONAL_SPEC = frozenset(
    {
        "context",
        "residual_block",
        "nominal_layer_bytes",
        "carried_elements",
        "mtp_layers",
        "draft_vocab",
        "tower_params",
    }
)


def check_spec(spec: ModelSpec, place: str) -> None:
    """Refuse sizes out of range, top_k above the number of experts, and unknown weight formats. Raises BadInput."""
    _positive(spec, OPTIONAL_SPEC, place)
    if not spec.layers:
        raise BadInput(place, None, "a model needs at least one layer")
    spec.formats.check(f"{place}.formats")
    seen: set[int] = set()
    for index, layer in enumerate(spec.layers):
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        at = f"{place}: layer {index}"
        for attention in layer.attention.kinds():
            _positive(attention, OPTIONAL, f"{at}.attention")
        _positive(layer.ffn, OPTIONAL, f"{at}.ffn")
        layer.formats.check(f"{at}.formats")
        if isinstance(layer.ffn, Moe) and layer.ffn.top_k > layer.ffn.experts:
            raise BadInput(f"{at}.ffn.top_k", layer.ffn.top_k, f"the layer has only {layer.ffn.experts} experts")
        for attention in layer.attention.kinds():
            _check_attention(attention, f"{at}.attention")


def _check_attention(attention: AttentionKind, at: str) -> None:
    if isinstance(attention, Gqa):
        if attention.heads % attention.kv_heads:
            raise BadInput(f"{at}.kv_heads", attention.kv_heads, f"they must divide the {attention.heads} heads")
        if attention.window_tokens and attention.chunk_tokens:
            raise BadInput(f"{at}.chunk_tokens", attention.chunk_tokens, "the layer has a sliding window too")
    indexed = getattr(attention, "index_heads", 0)
    if indexed and not (getattr(attention, "index_dim", 0) and getattr(attention, "index_top_k", 0)):
        raise BadInput(f"{at}.index_heads", indexed, "an indexer needs index_dim and index_top_k")
    if isinstance(attention, Compressed) and indexed and not attention.ratio:
        raise BadInput(f"{at}.ratio", 0, "an indexer needs compressed entries")
