"""Server-sent events of the OpenAI API: bytes → chunks. One pass in C per read, one decoding per chunk."""

from typing import Any

import msgspec

from stageline.errors import ProtocolError

MAX_LINE_BYTES = 4 << 20
DONE = b"[DONE]"


class Delta(msgspec.Struct, gc=False):
    """What a chunk of a chat adds."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ChunkChoice(msgspec.Struct, gc=False):
    """`text` in completions, `delta` in chats."""

    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    def added(self) -> str:
        """The text that the chunk adds; empty: none."""
        if self.delta is None:
            return self.text or ""
        return self.delta.content or self.delta.reasoning_content or self.delta.reasoning or ""


class Usage(msgspec.Struct, gc=False):
    """Token counts; the times are Stageline's: emulated seconds."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    queue_s: float | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event."""

    choices: list[ChunkChoice] = []
    usage: Usage | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(Chunk)


def decode_chunk(payload: bytes) -> Chunk:
    """An event's JSON. Raises ProtocolError."""
    try:
        return _CHUNK.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the server sent an event that is no chunk: {error}: {payload[:80]!r}") from None


class EventReader:
    """Cuts what arrives into the payloads of `data:` lines, wherever the network cut it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are complete now. Raises ProtocolError for a line without an end."""
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE_BYTES:
            raise ProtocolError(f"the server sent a line longer than {MAX_LINE_BYTES} bytes; is this an event stream?")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


def error_text(error: Any) -> str:
    """The sentence of an error object."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    return str(error)[:200]
