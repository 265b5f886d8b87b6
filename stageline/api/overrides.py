"""Overrides of a model's config at launch that change the longest context: vLLM's --hf-overrides, SGLang's like it."""

import json
from typing import Any

import msgspec

from stageline.errors import BadInput
from stageline.model.hf_context import ROPE_NAMES, scaled_context
from stageline.model.hf_fields import ConfigFields
from stageline.model.spec import ModelSpec

FLAG = "--hf-overrides"
KNOWN = (*ROPE_NAMES, "max_position_embeddings", "max_model_len")
_SECTION = "text_config"  # of multimodal models


def overridden(spec: ModelSpec, text: str | None) -> ModelSpec:
    """The model with the longest context that the overrides give it.

    Raises BadInput for what is not JSON, and for a field that would change something else.
    """
    if not text:
        return spec
    fields = _fields(text)
    unknown = next((name for name in fields if name not in KNOWN), None)
    if unknown is not None:
        reason = f"{unknown} makes another model of it"
        raise BadInput(FLAG, text, reason, f"give the path of a config.json that has it; known: {', '.join(KNOWN)}")
    f = ConfigFields(fields, FLAG)
    context = scaled_context(f, f.integer("max_position_embeddings", default=spec.context))
    return msgspec.structs.replace(spec, context=max(context, f.integer("max_model_len", default=0)))


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise BadInput(FLAG, text, f"not JSON: {error}", "quote it as your shell would") from None
    if not isinstance(fields, dict):
        raise BadInput(FLAG, text, "not a JSON object", 'write it like {"max_position_embeddings": 65536}')
    inner = fields.pop(_SECTION, {})
    return fields | inner if isinstance(inner, dict) else fields | {_SECTION: inner}
