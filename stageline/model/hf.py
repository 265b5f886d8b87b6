"""Imports a Hugging Face config.json as a ModelSpec."""

import json
from difflib import get_close_matches
from typing import Any

import msgspec

from stageline.errors import BadInput
from stageline.model.check import check_spec
from stageline.model.formats import WeightFormats
from stageline.model.hf_context import scaled_context
from stageline.model.hf_fields import ConfigFields
from stageline.model.hf_layers import Parts, predicted_layers
from stageline.model.hf_methods import quantisation
from stageline.model.hf_parts import ALIASES, BY_ARCHITECTURE, FAMILIES, Family
from stageline.model.hf_quant import Quantisation
from stageline.model.hf_vision import tower_params
from stageline.model.spec import ElementType, Layer, ModelSpec

BASE_FORMATS = {"bfloat16": "bf16", "float16": "bf16", "float32": "fp32"}
# Files beside config.json that say how weights are stored, and the method where the file does not name it.
BESIDE = {"hf_quant_config.json": "", "quantize_config.json": "gptq", "quant_config.json": "awq"}
TEXT_CONFIGS = ("text_config", "llm_config", "language_config")  # of multimodal models
WRAPPED = {"llama4": "llama4_text", "step3p7": "step3p7", "gemma4": "gemma4_text"}  # if text_config names no type
NEEDED = (
    "hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, intermediate_size, vocab_size"
)


def import_config(
    data: bytes,
    place: str,
    name: str,
    quantisation_file: bytes | None = None,
    quantisation_name: str = "hf_quant_config.json",
) -> ModelSpec:
    """Import a config.json. Vision towers and MTP layers are left out; `left_out` names them.

    `place` names the file in errors; `quantisation_file` is one of BESIDE, of that name, beside it. Raises BadInput
    naming the field that is malformed or missing, a model type or format that is not modelled, and any unknown field
    that may change sizes.
    """
    outer = ConfigFields(_parse(data, place), f"{place}: $")
    side = None
    if quantisation_file is not None:
        side_place = place.removesuffix("config.json") + quantisation_name
        side = ConfigFields(_parse(quantisation_file, side_place), f"{side_place}: $")
        if method := BESIDE[quantisation_name]:
            side.raw = {"quant_method": method, **side.raw}
    wrapped = next((n for n in TEXT_CONFIGS if n in outer.raw), None)
    f = outer.inner(wrapped) if wrapped else outer
    return _import(outer, f, name, side)


def _parse(data: bytes, place: str) -> Any:
    """JSON, with the Infinity and NaN that Python writes."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadInput(place, None, f"not valid JSON: {error}") from None


def _family(outer: ConfigFields, f: ConfigFields) -> Family:
    found, place = f.text("model_type"), f.at("model_type")
    if found is None and f is not outer:
        found, place = outer.text("model_type"), outer.at("model_type")
        if found is None or found not in WRAPPED:
            raise BadInput(place, str(found), "this wrapper is not modelled", "text_config must name its model_type")
        found = WRAPPED[found]
    by_architecture = [BY_ARCHITECTURE[name] for name in f.words("architectures") if name in BY_ARCHITECTURE]
    name = by_architecture[0] if by_architecture else ALIASES.get(str(found), found)
    if name in FAMILIES:
        return FAMILIES[str(name)]
    close = get_close_matches(str(found), FAMILIES, 3)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    way_out = f"{meant}known: {', '.join(FAMILIES)}; a type that is like one of them can be imported under its name, "
    lacking = [name for name in NEEDED.split(", ") if not f.has(name)]
    here = f"this file lacks {', '.join(lacking)}" if lacking else "this file has them all"
    raise BadInput(
        place, str(found), "not modelled", f"{way_out}if it has {NEEDED} ({here}); or write a model's TOML file"
    )


def _import(outer: ConfigFields, f: ConfigFields, name: str, side: ConfigFields | None) -> ModelSpec:
    family = _family(outer, f)
    f.raw = {**family.defaults, **f.raw}
    places = [(g, name) for name in ("quantization_config", "compression_config") for g in (f, outer)]
    where, name_of_section = next(((g, name) for g, name in places if g.get(name)), places[0])
    quant = quantisation(where.get(name_of_section), where.at(name_of_section), side)
    base = _base_formats(f, outer)
    parts = family.reader(f, family.traits)
    formats = msgspec.structs.replace(base, head=quant.format_of(("lm_head",), base.head))
    spec = ModelSpec(
        name=name,
        hidden=f.positive("hidden_size"),
        vocab=f.positive("vocab_size"),
        layers=_layers(parts, quant, base),
        formats=formats,
        tied=f.flag("tie_word_embeddings", default=outer.flag("tie_word_embeddings", default=family.traits.tied)),
        context=_context(f),
        kv_type=_kv_type(f, quant),
        state_type=_state_type(f),
        residual_block=f.integer("attn_res_block_size", default=0),
        residual_streams=parts.streams,
        carried_elements=parts.carried,
        left_out=_left_out(outer, f),
        quant_method=quant.method,
        tower_params=tower_params(outer),
        mtp_layers=predicted_layers(f),
        draft_vocab=f.integer("draft_vocab_size", default=0),
        extra=parts.extra,
    )
    for fields in (f, outer):
        fields.check_quantisation()
    f.finish()
    check_spec(spec, f.place)
    return spec


def _layers(parts: Parts, quant: Quantisation, base: WeightFormats) -> tuple[Layer, ...]:
    layers = []
    for i, part in enumerate(parts.layers):
        formats = quant.layer(i, part.attention, part.ffn, base)
        if parts.routed_format:
            formats = msgspec.structs.replace(formats, routed_experts=parts.routed_format)
        layers.append(Layer(part.attention, part.ffn, formats, part.extra))
    return tuple(layers)


def _base_formats(f: ConfigFields, outer: ConfigFields) -> WeightFormats:
    """The formats of weights that are not quantised: the config's dtype."""
    name = next((t for g in (f, outer) for n in ("dtype", "torch_dtype") if (t := g.text(n))), "bfloat16")
    if name not in BASE_FORMATS:
        raise BadInput(f.at("dtype"), str(name), "this type is not modelled", f"known: {', '.join(BASE_FORMATS)}")
    return WeightFormats(**dict.fromkeys(WeightFormats.__struct_fields__, BASE_FORMATS[name]))


def _context(f: ConfigFields) -> int:
    """The longest context; 0: unknown. Gemma 3 gives the stretched one, whatever its rotary embedding says."""
    positions = f.integer("max_position_embeddings", "max_sequence_length", "seq_length", default=0)
    return positions if "gemma3" in (f.text("model_type") or "") else scaled_context(f, positions)


def _kv_type(f: ConfigFields, quant: Quantisation) -> ElementType:
    """fp8 if the config says so, and for models with attention residuals, because Kimi K3 is served that way."""
    return "fp8" if quant.kv_fp8 or f.get("attn_res_block_size") else "bf16"


def _state_type(f: ConfigFields) -> ElementType:
    name = next((t for n in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype") if (t := f.text(n))), "float32")
    return "bf16" if name in ("bfloat16", "float16") else "fp32"


def _left_out(outer: ConfigFields, f: ConfigFields) -> tuple[str, ...]:
    """Vision and audio towers, and multi-token-prediction layers."""
    left = [f"{part} tower" for part in ("vision", "audio") if outer.get(f"{part}_config") is not None]
    predicted = predicted_layers(f)
    if predicted:
        left.append("MTP layer" if predicted == 1 else f"{predicted} MTP layers")
    return tuple(left)
