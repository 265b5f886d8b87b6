"""Typed access to the fields of a Hugging Face config.json, which records the fields that were read.

The importer does not guess: a field that it neither reads nor knows to be harmless (IGNORED) is an error.
"""

from typing import Any

from stageline.errors import BadInput

# Fields that change neither parameters nor caches: names, tokens, generation, training, numerics, positions.
IGNORED = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "model_type",
        "name_or_path",
        "transformers_version",
        "torchscript",
        "use_cache",
        "use_bfloat16",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "sep_token_id",
        "decoder_start_token_id",
        "ignore_index",
        "tokenizer_class",
        "initializer_range",
        "rms_norm_eps",
        "layer_norm_eps",
        "hidden_act",
        "hidden_activation",
        "activation_situ_beta",
        "activation_situ_linear_beta",
        "attention_dropout",
        "hidden_dropout",
        "resid_pdrop",
        "attn_pdrop",
        "embd_pdrop",
        "rope_scaling",
        "rope_theta",
        "rope_parameters",
        "rope_interleave",
        "partial_rotary_factor",
        "mla_use_nope",
        "max_window_layers",
        "aux_loss_alpha",
        "router_aux_loss_coef",
        "seq_aux",
        "output_router_logits",
        "norm_topk_prob",
        "scoring_func",
        "topk_method",
        "topk_group",
        "n_group",
        "num_expert_group",
        "use_grouped_topk",
        "routed_scaling_factor",
        "moe_renormalize",
        "moe_router_activation_func",
        "latent_moe_use_norm",
        "output_gate_type",
        "ep_size",
        "pretraining_tp",
        "mtp_use_dedicated_embeddings",
        "bad_words_ids",
        "begin_suppress_tokens",
        "chunk_size_feed_forward",
        "cross_attention_hidden_size",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "id2label",
        "label2id",
        "is_decoder",
        "is_encoder_decoder",
        "length_penalty",
        "max_length",
        "min_length",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_attentions",
        "output_hidden_states",
        "output_scores",
        "prefix",
        "problem_type",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict",
        "return_dict_in_generate",
        "suppress_tokens",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "top_k",
        "top_p",
        "typical_p",
        "mamba_ssm_dtype",
        "dtype",
        "torch_dtype",
    }
)


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

    def at(self, name: str) -> str:
        """The place of a field, for error messages."""
        return f"{self.place}.{name}"

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of these fields that is present: an integer >= 0. Raises BadInput."""
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 40:
                raise BadInput(self.at(name), value, "expected a non-negative integer")
            return value
        if default is None:
            raise BadInput(self.at(names[0]), None, "missing", "this model type needs it")
        return default

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean. Raises BadInput."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadInput(self.at(name), value, "expected true or false")
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

    def finish(self, ignored: frozenset[str] = IGNORED) -> None:
        """Refuse fields that were not read and may change sizes; null, false and {} are harmless. Raises BadInput."""
        for name, value in self.raw.items():
            if name in self._read or name in ignored or value in (None, False) or value == {}:
                continue
            shown = value if isinstance(value, (str, int, float)) else type(value).__name__
            raise BadInput(self.at(name), shown, "unknown field, it may change sizes", "remove it if it does not")
