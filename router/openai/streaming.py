"""Replies on the wire: a stream of events, or one document at the end."""

import asyncio

from aiohttp import web

from router.live.service import Reply
from router.openai.replies import DONE, Head, error_event, failure_of, usage_of
from stageline.errors import StagelineError

STALL_S = 30.0  # a client that takes nothing for so long is let go


class SlowReader(Exception):
    """The client does not read what it asked for."""


async def stream(
    request: web.Request, reply: Reply, head: Head, headers: dict[str, str], *, prompt_tokens: int, usage: bool
) -> web.StreamResponse:
    """Writes tokens as they fall due. The reply's streams hold numbers, so a slow client costs a socket buffer only."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"} | headers)
    await response.prepare(request)
    sent = [0] * len(reply.choices)
    left = len(sent)
    while left:
        await reply.wait()
        out: list[bytes] = []
        left = _take(reply, head, sent, out)
        error = failure_of(reply.choices) if not left else None
        if error:
            out.append(error_event(error))
        elif not left:
            if usage:
                out.append(head.usage_chunk(usage_of(reply, prompt_tokens, float(headers[DILATION]))))
            out.append(DONE)
        if out:
            await _write(request, response, b"".join(out))
    await response.write_eof()
    return response


DILATION = "x-stageline-dilation"


def _take(reply: Reply, head: Head, sent: list[int], out: list[bytes]) -> int:
    """Chunks of all tokens that are due and not sent; returns how many choices have not ended."""
    left = 0
    for index, (output, source) in enumerate(reply.choices):
        start, end = sent[index], source.tokens
        for position in range(start, end):
            last = position + 1 == output.tokens
            out.append(
                head.chunk(index, output.piece(position), first=not position, reason=output.reason if last else None)
            )
        sent[index] = end
        left += not source.ended
    return left


async def _write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Raises SlowReader when the client takes nothing for STALL_S."""
    transport = request.transport
    if transport is not None and not transport.get_write_buffer_size():
        await response.write(data)
        return
    try:
        async with asyncio.timeout(STALL_S):
            await response.write(data)
    except TimeoutError:
        if transport is not None:
            transport.abort()
        raise SlowReader from None


async def document(reply: Reply, head: Head, *, prompt_tokens: int, dilation: float, echo: list[str]) -> bytes:
    """The whole reply, once its last token is due. Raises the StagelineError that broke it off."""
    while not all(c.stream.ended for c in reply.choices):
        await reply.wait()
    error: StagelineError | None = failure_of(reply.choices)
    if error:
        raise error
    texts = [
        (prefix + c.output.text(0, c.stream.tokens), c.output.reason)
        for c, prefix in zip(reply.choices, echo, strict=True)
    ]
    return head.document(texts, usage_of(reply, prompt_tokens, dilation))
