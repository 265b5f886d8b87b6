"""Replies on the wire: a stream of events, or one document at the end."""

import asyncio
import logging
import socket

from aiohttp import HttpVersion11, web

from router.api.openai.replies import DONE, Head, error_event, failure_of, usage_of
from router.live.service import Reply
from router.live.stream import STALL_S
from stageline.errors import StagelineError

log = logging.getLogger(__name__)
HIGH_WATER_BYTES = 64 << 10  # unsent, in this process
SOCKET_BYTES = 128 << 10  # unread, in the kernel; by itself it would grow to megabytes
DILATION = "x-stageline-dilation"
_RETRY_S = 0.05


async def stream(
    request: web.Request, reply: Reply, head: Head, headers: dict[str, str], *, prompt_tokens: int, usage: bool
) -> web.StreamResponse:
    """Writes tokens as they fall due. A client that takes nothing for STALL_S is disconnected."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"} | headers)
    if request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    _bound(request.transport)
    await response.prepare(request)
    await reply.wait()
    writer = EventWriter(request, reply, head, chunked=bool(response.chunked))
    await response.write(writer.due())  # sends the headers too
    await writer.run()
    error = failure_of(reply.choices)
    if error:
        tail = error_event(error)
    else:
        tail = head.usage_chunk(usage_of(reply, prompt_tokens, float(headers[DILATION]))) + DONE if usage else DONE
    await response.write_eof(tail)
    return response


def _bound(transport: asyncio.Transport | None) -> None:
    plug = transport.get_extra_info("socket") if transport else None
    if plug is not None:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)


class EventWriter:
    """Writes every token as an event the moment it is due, without waking a task for it.

    What is due is a number per choice: a client that does not read costs its socket buffer and nothing more.
    """

    def __init__(self, request: web.Request, reply: Reply, head: Head, *, chunked: bool) -> None:
        self._transport, self._head, self._chunked = request.transport, head, chunked
        self._streams = [choice.stream for choice in reply.choices]
        self._events = [head.events(index, choice.output) for index, choice in enumerate(reply.choices)]
        self._sent = [0] * len(self._streams)
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._stalled_since_s: float | None = None

    async def run(self) -> None:
        """Returns when all choices have ended and all their tokens are written."""
        for stream in self._streams:
            stream.listen(self)
        self.notify()
        await self._finished

    def notify(self) -> None:
        """See Listener."""
        transport = self._transport
        if transport is None or self._stalled_since_s is not None or self._finished.done():
            return  # gone: the handler is cancelled; stalled: `_retry` goes on
        if transport.get_write_buffer_size() > HIGH_WATER_BYTES:
            self._stalled_since_s = self._loop.time()
            self._loop.call_later(_RETRY_S, self._retry)
            return
        data = self.due()
        if data and not transport.is_closing():
            transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        for stream in self._streams:
            if stream.record is None and stream.error is None:
                return
        self._finished.set_result(None)

    def due(self) -> bytes:
        """Events of all tokens that are due and not written."""
        sent, data = self._sent, b""
        for index, stream in enumerate(self._streams):
            before, tokens = sent[index], stream.tokens
            if before == tokens:
                continue
            events = self._events[index]
            data += events.event(before) if tokens == before + 1 else events.between(before, tokens)
            sent[index] = tokens
        return data

    def _retry(self) -> None:
        """Looks again whether the client reads."""
        since_s, transport = self._stalled_since_s, self._transport
        if since_s is None or transport is None or self._finished.done():
            return
        if transport.get_write_buffer_size() <= HIGH_WATER_BYTES:
            self._stalled_since_s = None
            self.notify()
        elif self._loop.time() - since_s > STALL_S:
            log.warning("a client that does not read was disconnected", extra={"reply": self._head.id})
            transport.abort()  # its handler is cancelled, as for any client that has left
        else:
            self._loop.call_later(_RETRY_S, self._retry)


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
