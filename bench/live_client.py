"""A client as lean as Python allows, so that measurements of the door are not measurements of a client library."""

import asyncio
import time

import msgspec

_EVENT = b'data: {"id'
_USAGE = b'"usage":'


class Reply(msgspec.Struct):
    """One streamed completion: when its chunks came, and what the server says it took in emulated time."""

    times_s: list[float] = []  # of each chunk with a token, since the request was sent
    usage: dict[str, float] = {}


class _Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._reply = Reply()
        self._began_s = 0.0
        self._tail = b""
        self._done: asyncio.Future[Reply] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's are none by name

    def connection_lost(self, exc: Exception | None) -> None:
        """See Protocol."""
        if self._done and not self._done.done():
            self._done.set_exception(ConnectionError("the server closed the connection"))

    async def ask(self, request: bytes) -> Reply:
        """Sends a request and waits for the end of its reply."""
        self._reply, self._done = Reply([], {}), asyncio.get_running_loop().create_future()
        self._began_s = time.perf_counter()
        self._transport.write(request)
        return await self._done

    def close(self) -> None:
        """Hangs up."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """See Protocol."""
        now_s = time.perf_counter() - self._began_s
        data = self._tail + data if self._tail else data
        whole = data.rfind(b"\n\n") + 2
        events = data.count(_EVENT, 0, whole)
        if data.find(b"[DONE]") < 0:
            self._reply.times_s += [now_s] * events
            self._tail = data[max(whole, 0) :] if whole > 1 else data
            return
        at = data.find(_USAGE)
        self._reply.usage = msgspec.json.decode(data[at + len(_USAGE) : data.index(b"}", at) + 1])
        self._reply.times_s += [now_s] * (data.count(_EVENT) - 1)
        self._tail = b""
        assert self._done is not None
        self._done.set_result(self._reply)


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


async def closed_loop(address: str, users: int, requests: int, request: bytes) -> list[Reply]:
    """`users` clients share `requests` requests; all replies."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    replies: list[Reply] = []
    left = iter(range(requests))

    async def user() -> None:
        for _ in left:
            _, client = await loop.create_connection(_Client, host, int(port))
            replies.append(await client.ask(request))
            client.close()

    await asyncio.gather(*(user() for _ in range(users)))
    return replies
