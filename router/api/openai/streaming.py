"""Sends replies: a stream of events, or one document at the end."""

import asyncio
import logging
import socket

from aiohttp import HttpVersion11, web

from router.api.openai.replies import DONE_EVENT, Envelope, RunningUsage, error_event, failure_of, usage_of
from router.api.openai.schema import StreamOptions
from router.live.service import Reply
from router.live.stream import MAX_TOKENS_AT_ONCE, STALL_S
from stageline.errors import StagelineError
from stageline.wire.http_headers import DILATION_HEADER

log = logging.getLogger(__name__)
HIGH_WATER_BYTES = 64 << 10  # limit of unsent bytes in this process
SOCKET_BYTES = 128 << 10  # size of the kernel's send buffer, which would grow to megabytes by default
_RETRY_S = 0.05


async def stream_reply(
    request: web.Request,
    reply: Reply,
    envelope: Envelope,
    headers: dict[str, str],
    *,
    prompt_tokens: int,
    options: StreamOptions,
) -> web.StreamResponse:
    """Sends tokens as they fall due. A client that reads nothing for STALL_S is disconnected."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"} | headers)
    if request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    _bound(request.transport)
    await response.prepare(request)
    await reply.wait()
    running = RunningUsage(prompt_tokens) if options.include_usage and options.continuous_usage_stats else None
    writer = SseWriter(request, reply, envelope, chunked=bool(response.chunked), running=running)
    await response.write(writer.due())  # sends the headers too
    await writer.run()
    error = failure_of(reply.choices)
    if error:
        tail = error_event(error)
    else:
        tail = (
            envelope.usage_chunk(usage_of(reply, prompt_tokens, float(headers[DILATION_HEADER]))) + DONE_EVENT
            if options.include_usage
            else DONE_EVENT
        )
    await response.write_eof(tail)
    return response


def _bound(transport: asyncio.Transport | None) -> None:
    sock = transport.get_extra_info("socket") if transport else None
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)


class SseWriter:
    """A Mailbox that writes every token as an event when it is due, without waking a task.

    It keeps one number per choice, so a client that does not read costs its socket buffer and nothing else.
    """

    def __init__(
        self, request: web.Request, reply: Reply, envelope: Envelope, *, chunked: bool, running: RunningUsage | None
    ) -> None:
        self._transport, self._envelope, self._chunked = request.transport, envelope, chunked
        self._streams = [choice.stream for choice in reply.choices]
        self._events = [envelope.events(index, choice.output, running) for index, choice in enumerate(reply.choices)]
        self._sent = [0] * len(self._streams)
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._stalled_since_s: float | None = None
        self._again: asyncio.Handle | None = None  # there is more to write at the loop's next turn

    async def run(self) -> None:
        """Returns when all choices have ended and all their tokens are written."""
        for stream in self._streams:
            stream.listen(self)
        self.notify()
        await self._finished

    def notify(self) -> None:
        """See Listener. Writes the tokens that are due."""
        transport = self._transport
        if transport is None or self._stalled_since_s is not None or self._finished.done():
            return  # disconnected: the handler is cancelled; stalled: `_retry` continues
        if transport.get_write_buffer_size() > HIGH_WATER_BYTES:
            self._stalled_since_s = self._loop.time()
            self._loop.call_later(_RETRY_S, self._retry)
            return
        data = self.due()
        if data and not transport.is_closing():
            transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        for stream, sent in zip(self._streams, self._sent, strict=True):
            if sent != stream.tokens:
                if self._again is None:
                    self._again = self._loop.call_soon(self._go_on)
                return
            if stream.record is None and stream.error is None:
                return
        self._finished.set_result(None)

    def _go_on(self) -> None:
        self._again = None
        self.notify()

    def due(self) -> bytes:
        """The events of the tokens that are due and not yet written, at most MAX_TOKENS_AT_ONCE."""
        sent, data, room = self._sent, b"", MAX_TOKENS_AT_ONCE
        for index, stream in enumerate(self._streams):
            before, tokens = sent[index], stream.tokens
            if before == tokens:
                continue
            if tokens - before > room:
                tokens = before + room
            room -= tokens - before
            events = self._events[index]
            data += events.event(before) if tokens == before + 1 else events.between(before, tokens)
            sent[index] = tokens
            if not room:
                break
        return data

    def _retry(self) -> None:
        """Checks whether the client reads again."""
        since_s, transport = self._stalled_since_s, self._transport
        if since_s is None or transport is None or self._finished.done():
            return
        if transport.get_write_buffer_size() <= HIGH_WATER_BYTES:
            self._stalled_since_s = None
            self.notify()
        elif self._loop.time() - since_s > STALL_S:
            log.warning("disconnected a client that does not read", extra={"reply": self._envelope.id})
            transport.abort()  # cancels its handler, as for any client that disconnects
        else:
            self._loop.call_later(_RETRY_S, self._retry)


async def ended(reply: Reply) -> None:
    """Return when the last token is due. Raises the StagelineError that ended the reply early."""
    while not all(c.stream.ended for c in reply.choices):
        await reply.wait()
    error: StagelineError | None = failure_of(reply.choices)
    if error:
        raise error


async def whole_reply(
    reply: Reply, envelope: Envelope, *, prompt_tokens: int, dilation: float, prefixes: list[str]
) -> bytes:
    """The whole reply, once its last token is due. Raises the StagelineError that ended it early."""
    await ended(reply)
    usage = usage_of(reply, prompt_tokens, dilation)

    def document() -> bytes:
        texts = (
            (c.output, prefix + c.output.text(0, c.stream.tokens))
            for c, prefix in zip(reply.choices, prefixes, strict=True)
        )
        return envelope.document(texts, usage)

    long = usage.completion_tokens + sum(map(len, prefixes)) > MAX_TOKENS_AT_ONCE
    return await asyncio.to_thread(document) if long else document()
