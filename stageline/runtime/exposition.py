"""GET /metrics on the server's own event loop: no thread may look at a machine while it is being driven."""

import asyncio
import contextlib
import ssl

from prometheus_client import CollectorRegistry

from stageline.errors import UsageError
from stageline.runtime.text_format import CONTENT_TYPE, encode

_READ_S = 5.0  # a scraper that does not finish its request is let go
_MAX_HEADERS = 100


class MetricsEndpoint:
    """A server that knows one path."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._registry, self._host, self.port, self._tls = registry, host, port, tls
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Binds; `port` is the real one afterwards. Raises UsageError when it is in use."""
        try:
            self._server = await asyncio.start_server(self._answer, self._host, self.port, ssl=self._tls)
        except OSError as error:
            raise UsageError(
                f"metrics port {self._host}:{self.port} can't be bound ({error.strerror or error}); "
                "choose another --metrics-port, 0 for any, -1 for none"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes the socket."""
        if self._server:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                writer.write(self._reply(await _path(reader)))
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _reply(self, path: str) -> bytes:
        if path.partition("?")[0] != "/metrics":
            return _http("404 Not Found", "text/plain", b"the only path here is /metrics\n")
        return _http("200 OK", CONTENT_TYPE, encode(self._registry))


async def _path(reader: asyncio.StreamReader) -> str:
    """The path of a request, its headers read. Raises ValueError for what is no HTTP request."""
    _, path, _ = (await reader.readline()).decode("latin-1").split(" ", 2)
    for _ in range(_MAX_HEADERS):
        if not (await reader.readline()).strip():
            return path
    raise ValueError("too many headers")


def _http(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
