"""Imports a Hugging Face config.json as a ModelSpec."""

from typing import Any

import msgspec

from stageline.errors import BadInput
from stageline.model.check import check_spec
from stageline.model.formats import WeightFormats
from stageline.model.hf_fields import ConfigFields
from stageline.model.hf_parts import FAMILIES
from stageline.model.hf_quant import Quantisation, quantisation
from stageline.model.spec import ElementType, Layer, ModelSpec

BASE_FORMATS = {"bfloat16": "bf16", "float16": "bf16", "float32": "fp32"}
WRAPPERS = frozenset({"kimi_k3", "kimi_k25", "qwen3_5"})  # multimodal models, whose text model is in text_config


def import_config(data: bytes, place: str, name: str) -> ModelSpec:
    """Import a config.json. Vision towers and MTP layers are left out; `left_out` names them.

    `place` names the file in errors. Raises BadInput naming the field that is malformed or missing, a model type or
    format that is not modelled, and any unknown field, because it may change sizes.
    """
    try:
        document: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(place, None, f"not valid JSON: {error}") from None
    outer = ConfigFields(document, f"{place}: $")
    if "text_config" in outer.raw:
        if outer.text("model_type") not in WRAPPERS:
            raise BadInput(outer.at("model_type"), str(outer.text("model_type")), "this wrapper is not modelled")
        return _import(outer, outer.inner("text_config"), name)
    return _import(outer, outer, name)


def _import(outer: ConfigFields, f: ConfigFields, name: str) -> ModelSpec:
    family = f.text("model_type")
    if family is None or family not in FAMILIES:
        raise BadInput(f.at("model_type"), str(family), "not modelled", f"known: {', '.join(FAMILIES)}")
    section = f.get("quantization_config")
    quant = quantisation(outer.get("quantization_config") if section is None else section, f.at("quantization_config"))
    base = _base_formats(f, outer)
    parts = FAMILIES[family](f)
    layers = tuple(Layer(a, b, quant.layer(i, a, b, base)) for i, (a, b) in enumerate(parts))
    spec = ModelSpec(
        name=name,
        hidden=f.integer("hidden_size"),
        vocab=f.integer("vocab_size"),
        layers=layers,
        formats=msgspec.structs.replace(base, head=quant.format_of("lm_head", base.head)),
        tied=f.flag("tie_word_embeddings", default=outer.flag("tie_word_embeddings")),
        context=f.integer("max_position_embeddings", default=0),
        kv_type=_kv_type(f, quant),
        state_type=_state_type(f),
        residual_block=f.integer("attn_res_block_size", default=0),
        left_out=_left_out(outer, f),
    )
    f.finish()
    check_spec(spec, f.place)
    return spec


def _base_formats(f: ConfigFields, outer: ConfigFields) -> WeightFormats:
    """The formats of weights that are not quantised: the config's dtype."""
    name = next((t for g in (f, outer) for n in ("dtype", "torch_dtype") if (t := g.text(n))), "bfloat16")
    if name not in BASE_FORMATS:
        raise BadInput(f.at("dtype"), str(name), "this type is not modelled", f"known: {', '.join(BASE_FORMATS)}")
    return WeightFormats(**dict.fromkeys(WeightFormats.__struct_fields__, BASE_FORMATS[name]))


def _kv_type(f: ConfigFields, quant: Quantisation) -> ElementType:
    """fp8 if the config says so, and for models with attention residuals, because Kimi K3 is served that way."""
    return "fp8" if quant.kv_fp8 or f.get("attn_res_block_size") else "bf16"


def _state_type(f: ConfigFields) -> ElementType:
    return "bf16" if f.get("mamba_ssm_dtype") == "bfloat16" else "fp32"


def _left_out(outer: ConfigFields, f: ConfigFields) -> tuple[str, ...]:
    """Vision tower and multi-token-prediction layers."""
    left = ["vision tower"] if outer.get("vision_config") is not None else []
    if f.integer("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0):
        left.append("MTP layer")
    return tuple(left)
