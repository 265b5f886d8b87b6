"""Typed access to the fields of a Hugging Face config.json, which records the fields that were read.

The importer does not guess: a field that it did not read, and whose name or value may mean a size, is an error.
"""

import re
from typing import Any

from stageline.errors import BadInput

# Fields whose names sound like sizes, but which change neither parameters nor caches.
IGNORED = frozenset(
    {
        "architectures",
        "attention_dropout",
        "attention_multiplier",
        "attention_value_scale",
        "auto_map",
        "chunk_size",
        "chunk_size_feed_forward",
        "cross_attention_hidden_size",
        "dual_chunk_attention_config",
        "embedding_multiplier",
        "encoder_no_repeat_ngram_size",
        "ep_size",
        "full_attn_mod",
        "hidden_act",
        "hidden_activation",
        "hidden_dropout",
        "indexer_rope_interleave",
        "latent_moe_use_norm",
        "max_window_layers",
        "mlp_hidden_act",
        "mla_use_nope",
        "model_type",
        "moe_aux_loss_coeff",
        "moe_capacity",
        "moe_every_n_layer",
        "moe_renormalize",
        "moe_router_activation_func",
        "moe_router_enable_expert_bias",
        "moe_router_scaling_factor",
        "moe_shared_expert_overlap",
        "moe_token_drop_policy",
        "moe_use_aux_free",
        "mtp_layers_block_type",
        "mtp_hybrid_override_pattern",
        "mtp_use_dedicated_embeddings",
        "n_ctx",
        "n_group",
        "n_positions",
        "need_fp32_gate",
        "norm_expert_weight",
        "no_repeat_ngram_size",
        "norm_topk_prob",
        "num_beam_groups",
        "num_beams",
        "num_expert_group",
        "num_hash_layers",
        "num_logits_to_keep",
        "num_return_sequences",
        "order_of_interleaved_layers",
        "output_attentions",
        "output_gate_type",
        "output_hidden_states",
        "output_router_logits",
        "pretraining_tp",
        "qk_norm_type",
        "query_pre_attn_scalar",
        "reorder_and_qk_norm",
        "rescale_prenorm_residual",
        "residual_in_fp32",
        "rotary_dim",
        "rotary_emb_base",
        "rope_head_dim",
        "time_step_rank",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "topk_group",
        "use_bidirectional_attention",
        "use_embedding_sharing",
        "use_gated_activation",
        "use_grouped_topk",
        "use_moe",
        "use_moe_router_bias",
        "use_parallel_block",
        "use_rope_in_full_attn",
        "use_router_bias",
        "use_routing_bias",
        "vision_feature_layer",
        "yarn_only_types",
    }
)
_HARMLESS = re.compile(
    r"_.*|.*(_token_ids?|_token_index|_eps|_epsilon|_dtype|_dropout|_coef|_theta|_softcapping|_impl|_version)"
    r"|.*rope.*|.*rotary.*|initializer.*|time_step_.*|swiglu_.*|.*loss.*|.*_alpha|.*_beta|router_.*|.*jitter.*"
    r"|(vision|image|video|audio|boa|boi|eoa|eoi|max|original)_.*"
)
_SIZE = re.compile(
    r"(size|dims?|num|n|heads?|layers?|experts?|ranks?|width|hidden|intermediate|bias|kernel|groups?|window|lora|adapter"
    r"|shared|share|moe|mlp|ffn|ff|attn|attention|gate|gating|tie|embed|embedding|embeddings|norm|layernorm|conv|state"
    r"|interval|freq|pattern|types?|block|blocks|compress|index|mtp|nextn|sparse|dense|vocab|channels|expand|mult"
    r"|memory|engram|ple|hc|sink|sinks)s?"
)


_QUANTISED = re.compile(r"quant\w*|compression_config")  # sections that say how weights are stored
_LISTING = frozenset({"pattern", "layer", "layers", "types", "block", "blocks", "freq"})  # what a text may list


def _may_change_sizes(name: str, value: object) -> bool:
    """Whether an unread field could be a size: its name says so, and its value is one."""
    words = name.split("_")
    if isinstance(value, str) and not _LISTING & set(words):
        return False
    if value in (None, False, 0, "") or isinstance(value, float) or name in IGNORED or _HARMLESS.fullmatch(name):
        return False
    if isinstance(value, (list, dict)):
        inner = value.values() if isinstance(value, dict) else value
        if all(x is None or isinstance(x, float) for x in inner):  # empty too
            return False
    return any(_SIZE.fullmatch(word) for word in words)


class ConfigFields:
    """A JSON object with typed access. Null counts as absent."""

    def __init__(self, raw: object, place: str) -> None:
        """Raises BadInput when `raw` is not an object."""
        if not isinstance(raw, dict):
            raise BadInput(place, type(raw).__name__, "expected a JSON object")
        self.raw: dict[str, Any] = raw
        self.place = place
        self._read: set[str] = set()

    def get(self, name: str) -> Any:
        """The raw value; None when absent."""
        self._read.add(name)
        return self.raw.get(name)

    def has(self, *names: str) -> bool:
        """Whether one of these fields is present."""
        return any(self.raw.get(name) is not None for name in names)

    def unused(self, *names: str) -> None:
        """Fields that this model type does not use."""
        self._read.update(names)

    def at(self, name: str) -> str:
        """The place of a field, for error messages."""
        return f"{self.place}.{name}"

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of these fields that is present: an integer >= 0. Raises BadInput."""
        self._read.update(names)
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 40:
                raise BadInput(self.at(name), _shown(value), "expected a non-negative integer")
            return value
        if default is None:
            others = f"; {', '.join(names[1:])} would do too" if names[1:] else ""
            raise BadInput(self.at(names[0]), None, "missing", f"this model type needs it{others}")
        return default

    def positive(self, *names: str, default: int | None = None) -> int:
        """Like `integer`, but at least 1. Raises BadInput."""
        value = self.integer(*names, default=default)
        if not value:
            raise BadInput(self.at(next((n for n in names if self.has(n)), names[0])), value, "must be positive")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean. Raises BadInput."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadInput(self.at(name), _shown(value), "expected true or false")
        return value

    def text(self, name: str) -> str | None:
        """A string; None when absent. Raises BadInput."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise BadInput(self.at(name), type(value).__name__, "expected a string")
        return value

    def integers(self, name: str) -> list[int]:
        """A list of integers; empty when absent. Raises BadInput."""
        return self._list(name, int, "integers")

    def words(self, name: str) -> list[str]:
        """A list of strings; empty when absent. Raises BadInput."""
        return self._list(name, str, "strings")

    def _list(self, name: str, kind: type, what: str) -> list[Any]:
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(x) is kind for x in value):
            raise BadInput(self.at(name), type(value).__name__, f"expected a list of {what}")
        return value

    def inner(self, name: str) -> "ConfigFields":
        """A nested object. Raises BadInput when it is missing."""
        return ConfigFields(self.get(name), self.at(name))

    def objects(self, name: str) -> "list[ConfigFields]":
        """A list of objects; empty when absent. Raises BadInput."""
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadInput(self.at(name), type(value).__name__, "expected a list of objects")
        return [ConfigFields(x, f"{self.at(name)}[{i}]") for i, x in enumerate(value)]

    def finish(self) -> None:
        """Refuse fields that were not read and may change sizes. Raises BadInput."""
        for name, value in self.raw.items():
            if name not in self._read and _may_change_sizes(name, value):
                way_out = "remove it if it does not"
                raise BadInput(self.at(name), _shown(value), "unknown field, it may change sizes", way_out)

    def check_quantisation(self) -> None:
        """Refuse sections that say how weights are stored, and were not read. Raises BadInput."""
        for name, value in self.raw.items():
            if name not in self._read and value not in (None, {}) and _QUANTISED.fullmatch(name):
                reason = "this way to store weights is not modelled, and they are not BF16"
                raise BadInput(self.at(name), _shown(value), reason)


def _shown(value: object) -> object:
    return value if isinstance(value, (str, int, float)) else type(value).__name__
