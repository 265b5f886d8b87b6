"""What a plan drafts with, as vLLM's --speculative-config says it: {"method": "mtp", "num_speculative_tokens": 1}."""

import json
from typing import Any

from stageline.api.keywords import PlanKeywords
from stageline.api.lookup import find_model
from stageline.catalog.loader import Catalog
from stageline.engine.settings import MAX_DRAFTS
from stageline.errors import BadInput
from stageline.model.spec import ModelSpec
from stageline.plan.drafter import FLAG, Draft, draft_model, eagle, mtp

METHODS = ("mtp", "eagle", "eagle3", "draft_model", "ngram")
_UNUSED = ("prompt_lookup_max", "prompt_lookup_min", "disable_padded_drafter_batch")  # they change nothing emulated
_WRITE = 'write it like \'{"method": "mtp", "num_speculative_tokens": 1}\''


def find_draft(spec: ModelSpec, asked: PlanKeywords, shelf: Catalog) -> Draft | None:
    """What drafts for the model; None without speculation. Raises BadInput."""
    text = asked.get("speculative_config")
    if text is None:
        return None
    fields = _fields(text)
    method, tokens, model = _method(fields), fields.get("num_speculative_tokens"), fields.get("model")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MAX_DRAFTS:
        raise BadInput(f"{FLAG}: num_speculative_tokens", tokens, f"not between 1 and {MAX_DRAFTS}", _WRITE)
    if method == "ngram":
        return Draft("ngram", tokens)
    if method == "mtp":
        return mtp(spec, tokens)
    if not isinstance(model, str) or not model:
        reason = f"{method} drafts with a model of its own"
        raise BadInput(f"{FLAG}: model", model, reason, "name it, or give the path of its config.json")
    found = find_model(model, shelf)
    if method == "draft_model":
        return draft_model(spec, found, tokens)
    return eagle(spec, found, "eagle3" if method == "eagle3" else "eagle", tokens)


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(FLAG, text, f"not JSON: {error}", _WRITE) from None
    if not isinstance(fields, dict):
        raise BadInput(FLAG, text, "not a JSON object", _WRITE)
    known = {"method", "num_speculative_tokens", "model", *_UNUSED}
    for name, value in fields.items():
        if name not in known:
            raise BadInput(f"{FLAG}: {name}", value, "not emulated", f"leave it out; known: {', '.join(sorted(known))}")
    return fields


def _method(fields: dict[str, Any]) -> str:
    """The method; vLLM calls MTP by the model's name too (deepseek_mtp), and takes a model alone as a draft model."""
    method = fields.get("method", "draft_model" if "model" in fields else None)
    if isinstance(method, str) and method.endswith("_mtp"):
        return "mtp"
    if method not in METHODS:
        raise BadInput(f"{FLAG}: method", method, "not emulated", f"known: {', '.join(METHODS)}")
    return str(method)
