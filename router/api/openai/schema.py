"""The bodies that clients send. Fields that are not listed, such as sampling settings, are accepted and ignored."""

from typing import Any

import msgspec


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a streamed reply."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class CommonFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of both kinds of completion; null means "not given"."""

    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    priority: int | None = None
    user: str | None = None
    stop_token_ids: list[int] | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of a chat; `content` is text, or a list of parts of which only the texts count."""

    role: str
    content: str | list[dict[str, Any]] | None = None


class ChatRequest(CommonFields, frozen=True, kw_only=True):
    """/v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class CompletionRequest(CommonFields, frozen=True, kw_only=True):
    """/v1/completions. A prompt is a text, token ids, or a list of either."""

    prompt: str | list[str | int | list[int]] = ""
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """/tokenize."""

    model: str = ""
    prompt: str | None = None
    messages: list[Message] | None = None


class PromptDetails(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the prompt tokens were in the prefix cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts, and what the emulated cluster took, in emulated seconds (of the slowest choice)."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    queue_s: float
    arrival_s: float  # of the first choice, since the live session began
    ttft_s: float
    e2e_s: float
    dilation: float
