"""A client as lean as Python allows, so that measurements of the door are not measurements of a client library.

It speaks just enough HTTP to send a streamed completion over a connection that stays open, counts the events that come
back and notes when. It parses no event but the one with the usage.
"""

import asyncio
import time

import msgspec

_EVENT = b'data: {"id'
_USAGE = b'"usage":'
_READY_S = 30.0
_POLL_S = 0.1


class Reply(msgspec.Struct):
    """One streamed completion: when its chunks came, and what the server says it took in emulated time."""

    times_s: list[float] = []  # of each chunk with a token, since the request was sent
    usage: dict[str, float] = {}


class Client(asyncio.Protocol):
    """One connection, one request at a time. `reply` is that of the request under way, `reads` of all of them."""

    def __init__(self) -> None:
        self.reply = Reply()
        self.reads = 0
        self._began_s = 0.0
        self._tail = b""
        self._done: asyncio.Future[Reply] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's are none by name

    def connection_lost(self, exc: Exception | None) -> None:
        """See Protocol."""
        self._fail("the server closed the connection")

    async def ask(self, request: bytes) -> Reply:
        """Sends a request and waits for the end of its reply. Raises ConnectionError when it has no good end."""
        self.reply, self._done = Reply([], {}), asyncio.get_running_loop().create_future()
        self._began_s, self._tail = time.perf_counter(), b""
        self._transport.write(request)
        return await self._done

    def close(self) -> None:
        """Hangs up."""
        self._done = None
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """See Protocol."""
        self.reads += 1
        now_s, reply = time.perf_counter() - self._began_s, self.reply
        data = self._tail + data if self._tail else data
        if not reply.times_s and b"HTTP/1.1 " in data and b"HTTP/1.1 200" not in data:
            return self._fail(data.decode(errors="replace"))
        whole = data.rfind(b"\n\n") + 2
        events = data.count(_EVENT, 0, whole)
        if b"[DONE]" not in data:
            reply.times_s += [now_s] * events
            self._tail = data[whole:] if whole > 1 else data
            if b'data: {"error"' in data:
                self._fail(data.decode(errors="replace"))
            return None
        at = data.find(_USAGE)
        reply.usage = msgspec.json.decode(data[at + len(_USAGE) : data.index(b"}}", at) + 1])
        reply.times_s += [now_s] * (events - 1)
        if self._done and not self._done.done():
            self._done.set_result(reply)
        return None

    def _fail(self, text: str) -> None:
        if self._done and not self._done.done():
            self._done.set_exception(ConnectionError(text))


def request_of(prompt_tokens: int, output_tokens: int) -> bytes:
    """A streamed completion."""
    body = msgspec.json.encode(
        {
            "prompt": [1] * prompt_tokens,
            "max_tokens": output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    head = f"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def connect(address: str) -> Client:
    """A connection to host:port."""
    host, _, port = address.rpartition(":")
    _, client = await asyncio.get_running_loop().create_connection(Client, host, int(port))
    return client


async def ready(address: str) -> None:
    """Returns once the door takes requests: a session opens a moment after all stages serve. Raises TimeoutError."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_READY_S):
        while True:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /ready HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            if answer.startswith(b"HTTP/1.1 200"):
                return
            await asyncio.sleep(_POLL_S)


async def closed_loop(address: str, users: int, requests: int, request: bytes) -> list[Reply]:
    """`users` connections share `requests` requests; all replies."""
    replies: list[Reply] = []
    left = iter(range(requests))

    async def user() -> None:
        client = await connect(address)
        for _ in left:
            replies.append(await client.ask(request))
        client.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(users):
            group.create_task(user())
    return replies
