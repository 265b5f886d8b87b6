"""Sends calls over HTTP, to any server with a streaming OpenAI API."""

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec

from stageline.errors import ProtocolError
from stageline.load.body import Bodies
from stageline.load.clock import Clock
from stageline.load.reply import MAX_RETRY_AFTER_NS, RETRY_NS, Call, CallReply, Emulated
from stageline.load.sse import DONE_PAYLOAD, ChunkUsage, EventReader, decode_chunk, error_text
from stageline.units import NS_PER_S, decimal_ns
from stageline.wire.http_headers import DILATION_HEADER, OUTPUT_TOKENS_HEADER

KEEP_ALIVE_S = 4.0  # uvicorn closes idle connections after 5 s, and a call must not use one that is about to close
_MAX_ERROR_BYTES = 64 << 10
_REJECTED = (429, 503)


def open_http(*, api_key: str = "", tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Opens a connection pool without a limit. `tls` None: the usual certificate authorities."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return aiohttp.ClientSession(
        headers=headers | {"Content-Type": "application/json"},
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=tls or True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        raise_for_status=False,
    )


class HttpTarget:
    """A Target. At most `connections` calls run at once; others wait, and the wait counts towards their latency."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, bodies: Bodies, clock: Clock, *, connections: int,
        timeout_s: float, stageline: bool = False,
    ) -> None:  # fmt: skip
        self._session, self._url, self._bodies, self._clock = session, url, bodies, clock
        self._slots = asyncio.Semaphore(connections)
        self._timeout_s = timeout_s
        self._stageline = stageline

    async def send(self, call: Call, reply: CallReply) -> None:
        """See Target. The timeout starts when the call gets a connection."""
        async with self._slots:
            reply.sent(self._clock.now_ns())
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._exchange(call, reply)
            except TimeoutError:
                _fail(reply, "timeout", f"no complete reply after {self._timeout_s:g} s")
            except ProtocolError as error:
                _fail(reply, "no event stream", str(error))
            except aiohttp.ClientConnectorCertificateError as error:
                _fail(reply, "certificate not trusted", str(error.certificate_error))
            except aiohttp.ClientConnectorError as error:
                _fail(reply, "unreachable", str(error))
                reply.retry_after_ns = RETRY_NS
            except (aiohttp.ClientError, OSError) as error:
                _fail(reply, "cut" if reply.chunks else "disconnected", str(error) or type(error).__name__)
                reply.retry_after_ns = RETRY_NS  # it may come back: a closed loop must not burn its calls
        reply.end_ns = self._clock.now_ns()

    async def _exchange(self, call: Call, reply: CallReply) -> None:
        headers = {}
        if self._stageline and call.max_output_tokens != call.output_tokens:
            headers[OUTPUT_TOKENS_HEADER] = str(call.output_tokens)
        async with self._session.post(self._url, data=self._bodies.of(call), headers=headers) as response:
            reply.dilation = response.headers.get(DILATION_HEADER)
            if response.status == 200:
                await self._read(response.content, reply)
                return
            body = await response.content.read(_MAX_ERROR_BYTES)
            if response.status in _REJECTED:
                reply.retry_after_ns = retry_after_ns(response.headers.get("Retry-After", ""), datetime.now(UTC))
            outcome = "rejected" if response.status in _REJECTED else "failed"
            reply.end(outcome, f"HTTP {response.status}", _error_text(body))  # type: ignore[arg-type]

    async def _read(self, content: aiohttp.StreamReader, reply: CallReply) -> None:
        """Reads a stream. It is complete if it has a [DONE]; otherwise it was cut.

        What follows [DONE] is read, too: only then can the connection carry the next call.
        """
        events = EventReader()
        while data := await content.readany():
            now_ns = self._clock.now_ns()
            for payload in events.feed(data):
                if payload == DONE_PAYLOAD:
                    reply.end("finished")
                elif not _handle(payload, now_ns, reply):
                    return
        if reply.outcome != "finished":
            reply.end("failed", "cut", f"the stream ended after {reply.chunks} chunks, without [DONE]")


def _fail(reply: CallReply, reason: str, detail: str) -> None:
    """Marks the call as failed, unless its reply was already complete."""
    if reply.outcome != "finished":
        reply.end("failed", reason, detail)


def _handle(payload: bytes, now_ns: int, reply: CallReply) -> bool:
    """Adds one event to the reply; False: the event is an error, which ends it."""
    chunk = decode_chunk(payload)
    if chunk.error is not None:
        reply.end("failed", "error event", error_text(chunk.error))
        return False
    for choice in chunk.choices or ():
        if text := choice.added():
            reply.chunk(now_ns, text)
    if chunk.usage is not None:
        read_usage(chunk.usage, reply)
    return True


def read_usage(usage: ChunkUsage, reply: CallReply) -> None:
    """Copies the server's token counts, and its emulated times if it has them."""
    reply.prompt_tokens, reply.output_tokens = usage.prompt_tokens, usage.completion_tokens
    if usage.queue_s is not None and usage.ttft_s is not None and usage.e2e_s is not None:
        queue_ns, ttft_ns, e2e_ns = (round(s * NS_PER_S) for s in (usage.queue_s, usage.ttft_s, usage.e2e_s))
        arrival_ns = None if usage.arrival_s is None else round(usage.arrival_s * NS_PER_S)
        reply.emulated = Emulated(queue_ns, ttft_ns, e2e_ns, arrival_ns, usage.token_gaps_ns)


def retry_after_ns(text: str, now: datetime) -> int:
    """Parses Retry-After, seconds or a date: at most an hour, RETRY_NS if it is missing or malformed."""
    wait_ns = decimal_ns(text.strip(), NS_PER_S)
    if wait_ns is None:
        wait_ns = RETRY_NS
        with suppress(ValueError, TypeError):
            wait_ns = round((parsedate_to_datetime(text) - now).total_seconds() * NS_PER_S)
    return min(max(0, wait_ns), MAX_RETRY_AFTER_NS)


class _ErrorBody(msgspec.Struct):
    error: object = None


def _error_text(body: bytes) -> str:
    """The error's message, or the beginning of a body that is not an OpenAI error."""
    with suppress(msgspec.MsgspecError, ValueError):
        found = msgspec.json.decode(body, type=_ErrorBody).error
        if found is not None:
            return error_text(found)
    return body[:200].decode("utf-8", "replace")
