"""The bodies that clients send. Fields that are not listed, such as sampling settings, are accepted and ignored."""

from typing import Any

import msgspec


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a streamed reply. `include_token_gaps`: the usage has `token_gaps_ns`."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_token_gaps: bool | None = None


class JsonSchema(msgspec.Struct, frozen=True):
    """The schema of a structured output."""

    name: str = ""
    schema: Any = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """`type`: text, json_object or json_schema."""

    type: str
    json_schema: JsonSchema | None = None


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
    response_format: ResponseFormat | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    """A function that was called: `arguments` as JSON."""

    name: str = ""
    arguments: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """A call that an assistant's message made."""

    function: CalledFunction | None = None


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that may be called; `parameters` is a JSON Schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct, frozen=True):
    """A tool; only functions are emulated."""

    type: str
    function: Function | None = None


class NamedFunction(msgspec.Struct, frozen=True):
    """The function that has to be called."""

    name: str


class ToolChoice(msgspec.Struct, frozen=True):
    """The tool that has to be called."""

    type: str = "function"
    function: NamedFunction | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of a chat; `content` is text, or a list of parts: texts and images."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[ToolCall] | None = None


class ChatRequest(CommonFields, frozen=True, kw_only=True):
    """/v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: str | ToolChoice | None = None


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
    tools: list[Tool] | None = None


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """/v1/embeddings. An input is a text, token ids, or a list of either."""

    model: str = ""
    input: str | list[str | int | list[int]]
    encoding_format: str | None = None
    dimensions: int | None = None
    user: str | None = None
    priority: int | None = None


class PromptDetails(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the prompt tokens were in the prefix cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts, and what the emulated cluster took, in emulated seconds (of the slowest choice).

    `token_gaps_ns`: emulated time between each token and the one before it, choice by choice, if asked for.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    queue_s: float
    arrival_s: float  # of the first choice, since the live session began
    ttft_s: float
    e2e_s: float
    dilation: float
    token_gaps_ns: list[int] | msgspec.UnsetType = msgspec.UNSET
