"""/v1/embeddings: each input costs what the prefill of such a prompt costs. The vectors are synthetic."""

import base64
from array import array
from collections.abc import Sequence
from hashlib import shake_256
from typing import Any

import msgspec

from router.api.generation import GenerationParams
from router.api.openai.params import prompts
from router.api.openai.schema import EmbeddingRequest
from router.api.prompts import PromptReader
from stageline.errors import BadInput

MAX_INPUTS = 2048
MAX_DIMENSIONS = 16384
MAX_VALUES = 1 << 21  # of all vectors of a reply
DEFAULT_DIMENSIONS = 1024


def embedding_params(body: EmbeddingRequest, reader: PromptReader) -> list[GenerationParams]:
    """One request per input, of one output token: it is done when its prefill is. Raises BadInput."""
    found = [
        GenerationParams(
            prompt=prompt,
            prompt_tokens=count,
            ids=tuple(original) if isinstance(original, list) else (),
            prompt_text=None,
            max_tokens=1,
            exact_tokens=1,
        )
        for prompt, count, original in prompts("input", body.input, reader, MAX_INPUTS)
    ]
    dimensions = DEFAULT_DIMENSIONS if body.dimensions is None else body.dimensions
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise BadInput("dimensions", dimensions, f"not between 1 and {MAX_DIMENSIONS}")
    if dimensions * len(found) > MAX_VALUES:
        raise BadInput("dimensions", dimensions, f"more than {MAX_VALUES} values in one reply", "send fewer inputs")
    if body.encoding_format not in (None, "float", "base64"):
        raise BadInput("encoding_format", body.encoding_format, "not float or base64")
    return found


def embeddings_document(body: EmbeddingRequest, model: str, inputs: Sequence[GenerationParams]) -> bytes:
    """The reply. A vector's elements are all equal but for their signs, a hash of the input: its length is 1."""
    dimensions = body.dimensions or DEFAULT_DIMENSIONS
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": index, "embedding": _encoded(_vector(one.prompt, dimensions), body)}
        for index, one in enumerate(inputs)
    ]
    tokens = sum(one.prompt_tokens for one in inputs)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": model, "usage": usage})


def _vector(prompt: bytes, dimensions: int) -> "array[float]":
    bits = int.from_bytes(shake_256(prompt).digest(-(-dimensions // 8)), "little")
    size = dimensions**-0.5
    return array("f", [size if bits >> number & 1 else -size for number in range(dimensions)])


def _encoded(vector: "array[float]", body: EmbeddingRequest) -> str | list[float]:
    if body.encoding_format == "base64":
        return base64.b64encode(vector.tobytes()).decode()
    return vector.tolist()
