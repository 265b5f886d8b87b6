"""Rule 6: the KV that a sequence holds, in tokens."""

from collections.abc import Callable

from stageline.engine.settings import Scheduling
from stageline.engine.types import Request


def admission_tokens(scheduling: Scheduling, request: Request, computed_tokens: int) -> int:
    """What it must hold to be admitted; `computed_tokens` are the cached ones and its first chunk."""
    return ADMISSION_TOKENS[scheduling.kv](request, computed_tokens)


def max_tokens(scheduling: Scheduling, request: Request) -> int:
    """The most it will hold: the last token is never written."""
    return everything(request, 0)


def everything(request: Request, computed_tokens: int) -> int:
    """Prompt and largest output up front, without the output's last token."""
    return request.prompt_tokens + request.max_output_tokens - 1


def what_is_written(request: Request, computed_tokens: int) -> int:
    """No more than is computed."""
    return computed_tokens


ADMISSION_TOKENS: dict[str, Callable[[Request, int], int]] = {
    "reserve": everything,
    "grow": what_is_written,
}
GROWING = ("grow",)
