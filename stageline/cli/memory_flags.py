"""The flags of memory and the KV cache."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from stageline.api.keywords import PlanKeywords
from stageline.api.launch_values import memory
from stageline.cli.groups import MEMORY, flag
from stageline.cli.numbers import DECIMAL, WHOLE
from stageline.errors import BadInput
from stageline.units import parse_tokens


@Parameter(name="*", group=MEMORY)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFlags:
    """What has to fit in memory."""

    context: Annotated[str | None, flag("Tokens per request to make room for, like 8192 or 128K.")] = None
    max_model_len: Annotated[
        str | None,
        flag(
            "Longest prompt and output together, and the --context unless given; auto or -1: the longest that fits the "
            "KV cache; default: the model's."
        ),
    ] = None
    kv_blocks: Annotated[
        int | None,
        WHOLE,
        flag("KV blocks of every stage; default: what memory holds.", "--num-gpu-blocks-override", "--kv-blocks"),
    ] = None
    kv_cache_bytes: Annotated[
        str | None,
        flag(
            "Memory of every device for KV and state, like 25G (2^30), 25g (10^9) or in bytes, in place of what "
            "--memory-share leaves.",
            "--kv-cache-memory-bytes",
        ),
    ] = None
    concurrency: Annotated[int, WHOLE, flag("Requests of that context that every stage must have room for.")] = 1
    memory_share: Annotated[
        float | None,
        DECIMAL,
        flag(
            "Usable fraction of memory; default: 1.0 on wafers, 0.9 on GPUs.",
            "--memory-share",
            "--gpu-memory-utilization",
        ),
    ] = None
    activations: Annotated[
        Literal["auto", "reserve", "static", "kv", "free"],
        flag(
            "What --memory-share holds beside weights and KV: nothing (reserve), the runtime (static, SGLang), that "
            "and activations (kv, vLLM), or a share of what these leave (free, TensorRT-LLM); auto: as the engine does."
        ),
    ] = "auto"
    block_tokens: Annotated[
        int | None, WHOLE, flag("Tokens per KV block; default: the engine's.", "--block-tokens", "--block-size")
    ] = None
    whole_kv: Annotated[bool, flag("Keep the whole context in sliding-window layers too.")] = False

    def keywords(self) -> PlanKeywords:
        """As the API takes them. Raises BadInput for what is no number of tokens or bytes."""
        return {
            "context_tokens": None if self.context is None else parse_tokens(self.context, "--context"),
            "max_model_len": _model_length(self.max_model_len),
            "kv_blocks": self.kv_blocks,
            "kv_cache_bytes": _kv_bytes(self.kv_cache_bytes),
            "concurrency": self.concurrency,
            "memory_share": self.memory_share,
            "activations": self.activations,
            "block_tokens": self.block_tokens,
            "whole_kv": self.whole_kv,
        }


def _model_length(text: str | None) -> int | Literal["auto"] | None:
    if text in ("auto", "-1"):
        return "auto"
    return None if text is None else parse_tokens(text, "--max-model-len")


def _kv_bytes(text: str | None) -> int | None:
    try:
        return None if text is None else memory(text)
    except ValueError as error:
        raise BadInput("--kv-cache-memory-bytes", text, str(error), "write it like 25G, 25g or in bytes") from None
