"""Bodies of replies: JSON documents, chunks of a stream, errors."""

import time
import uuid
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from router.api.generation import Output
from router.api.openai.schema import PromptDetails, Usage
from router.live.service import Choice, Reply
from stageline.engine.types import RequestRecord
from stageline.errors import StagelineError

CompletionKind = Literal["chat", "completion"]
DONE_EVENT = b"data: [DONE]\n\n"
# The JSON around the text of a token: before the first token, before any other, after the token.
_CHAT = (
    b'"delta":{"role":"assistant","content":', b'"delta":{"content":', b'},"logprobs":null,"finish_reason":'
)  # fmt: skip
_COMPLETION = (b'"text":', b'"text":', b',"logprobs":null,"finish_reason":')
_CALL = (
    b'"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":%b,"type":"function","function":'
    b'{"name":%b,"arguments":',
    b'"delta":{"tool_calls":[{"index":0,"function":{"arguments":',
    b'}}]},"logprobs":null,"finish_reason":',
)
_encode = msgspec.json.Encoder().encode


class Envelope:
    """The fields that all parts of one reply share."""

    def __init__(self, kind: CompletionKind, model: str, *, streamed: bool) -> None:
        self.kind = kind
        self.id = ("chatcmpl-" if kind == "chat" else "cmpl-") + uuid.uuid4().hex
        self.model = model
        name = "chat.completion" if kind == "chat" else "text_completion"
        if streamed and kind == "chat":
            name += ".chunk"
        self.fields: dict[str, Any] = {"id": self.id, "object": name, "created": int(time.time()), "model": model}
        self._open = b"data: " + _encode(self.fields)[:-1] + b',"choices":[{"index":'

    def events(self, index: int, output: Output, running: "RunningUsage | None" = None) -> "ChoiceEvents":
        """The events of one choice."""
        parts = _COMPLETION
        if self.kind == "chat":
            parts = _CALL if output.tool else _CHAT
        if output.tool:
            parts = (parts[0] % (_encode(_call_id(output)), _encode(output.tool)), *parts[1:])
        return ChoiceEvents(self._open + b"%d," % index, output, parts, running)

    def usage_chunk(self, usage: Usage) -> bytes:
        """The event with the usage, the last one before [DONE]."""
        return b"data: " + _encode(self.fields | {"choices": [], "usage": usage}) + b"\n\n"

    def document(self, choices: Iterable[tuple[Output, str]], usage: Usage) -> bytes:
        """The whole reply; `choices` are outputs and their texts."""
        entries: list[dict[str, Any]] = []
        for index, (output, text) in enumerate(choices):
            body = {"message": _message(output, text)} if self.kind == "chat" else {"text": text}
            entries.append({"index": index} | body | {"logprobs": None, "finish_reason": finish_reason(output)})
        return _encode(self.fields | {"choices": entries, "usage": usage})


class RunningUsage(NamedTuple):
    """The usage so far, which every event carries with `continuous_usage_stats`."""

    prompt_tokens: int

    def member(self, completion_tokens: int) -> bytes:
        """The event's member, with the comma before it."""
        total = self.prompt_tokens + completion_tokens
        return b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (
            self.prompt_tokens, completion_tokens, total,
        )  # fmt: skip


class ChoiceEvents:
    """The tokens of one choice as events. This runs for every token, so everything but the text is prepared once.

    `parts`: the JSON before the text of the first token, before that of any other, and after it.
    """

    def __init__(
        self, opening: bytes, output: Output, parts: tuple[bytes, ...], running: RunningUsage | None = None
    ) -> None:
        self._encoded, self._last, self._running = output.encoder(), output.tokens - 1, running
        first, before, after = parts
        self._first, self._before = opening + first, opening + before
        close = b"" if running else b"}\n\n"
        self._after = after + b"null}]" + close
        self._end = after + _encode(finish_reason(output)) + b"}]" + close

    def event(self, position: int) -> bytes:
        """The event of one token."""
        before = self._before if position else self._first
        data = before + self._encoded(position) + (self._end if position == self._last else self._after)
        return data if self._running is None else data + self._running.member(position + 1) + b"}\n\n"

    def between(self, start: int, end: int) -> bytes:
        """The events of the tokens [start, end)."""
        return b"".join([self.event(position) for position in range(start, end)])


def finish_reason(output: Output) -> str:
    """A call that is complete has a reason of its own."""
    return "tool_calls" if output.tool and output.reason == "stop" else output.reason


def _message(output: Output, text: str) -> dict[str, Any]:
    if not output.tool:
        return {"role": "assistant", "content": text}
    call = {"id": _call_id(output), "type": "function", "function": {"name": output.tool, "arguments": text}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _call_id(output: Output) -> str:
    return f"call_{output.key:016x}"


def usage_of(reply: Reply, prompt_tokens: int, dilation: float) -> Usage:
    """The usage of a reply whose choices have all ended. `prompt_tokens`: the sum of its prompts, each counted once."""
    records = [r for c in reply.choices if (r := c.stream.record) is not None]
    produced = sum(r.output_tokens for r in records)
    firsts = [r for c in reply.choices[:: reply.n] if (r := c.stream.record) is not None]
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=produced,
        total_tokens=prompt_tokens + produced,
        prompt_tokens_details=PromptDetails(cached_tokens=sum(r.cached_tokens or 0 for r in firsts)),
        queue_s=_longest_s(records, "admitted_ns"),
        arrival_s=min((r.arrival_ns for r in records), default=0) / 1e9,
        ttft_s=_longest_s(records, "first_token_ns"),
        e2e_s=_longest_s(records, "last_token_ns"),
        dilation=dilation,
        token_gaps_ns=[gap for c in reply.choices for gap in c.stream.gaps_ns or ()] if reply.gaps else msgspec.UNSET,
    )


def _longest_s(records: Iterable[RequestRecord], until: str) -> float:
    times = [(end - r.arrival_ns) / 1e9 for r in records if (end := getattr(r, until)) is not None]
    return max(times, default=0.0)


def failure_of(choices: Iterable[Choice]) -> StagelineError | None:
    """The error that ended a reply early, if any."""
    return next((c.stream.error for c in choices if c.stream.error is not None), None)


def error_body(message: str, kind: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """An error in the format of the OpenAI API."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_event(error: StagelineError) -> bytes:
    """An error as an event, for the middle of a stream."""
    return b"data: " + error_body(str(error), error.error_type, code=str(error.http_status)) + b"\n\n"
