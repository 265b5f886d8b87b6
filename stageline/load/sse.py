"""Server-sent events of the OpenAI API: bytes → chunks. One split per read, one JSON decoding per chunk."""

from typing import Any

import msgspec

from stageline.errors import ProtocolError

MAX_EVENT_LINE_BYTES = 4 << 20
DONE_PAYLOAD = b"[DONE]"


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds to a chat message."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class ChunkChoice(msgspec.Struct, gc=False):
    """One choice of a chunk: `text` in completions, `delta` in chats."""

    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    def added(self) -> str:
        """The text that the chunk adds; may be empty."""
        if self.delta is None:
            return self.text or ""
        delta = self.delta
        text = delta.content or delta.reasoning_content or delta.reasoning
        return text or (str(delta.tool_calls) if delta.tool_calls else "")


class ChunkUsage(msgspec.Struct, gc=False):
    """Token counts. The times, in emulated seconds or ns, are Stageline's own members."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    queue_s: float | None = None
    arrival_s: float | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    token_gaps_ns: list[int] | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event: choices, usage or an error."""

    choices: list[ChunkChoice] | None = None  # null in the usage chunk of some servers
    usage: ChunkUsage | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(Chunk)


def decode_chunk(payload: bytes) -> Chunk:
    """Decodes an event's JSON. Raises ProtocolError."""
    try:
        return _CHUNK.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the server sent an event that is not a chunk: {error}: {payload[:80]!r}") from None


class EventReader:
    """Splits a byte stream, however the network cuts it, into the payloads of its `data:` lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that `data` completes. Raises ProtocolError for a line over MAX_EVENT_LINE_BYTES."""
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_EVENT_LINE_BYTES:
            raise ProtocolError(
                f"the server sent a line longer than {MAX_EVENT_LINE_BYTES} bytes; is this an event stream?"
            )
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


def error_text(error: Any) -> str:
    """The message of an error object."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    return str(error)[:200]
