"""A small server that speaks the OpenAI API and misbehaves on demand, for tests of the load client and of examples."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web


@dataclass
class Fake:
    """How the server behaves, and what it has been sent. `misbehave`: call number → what goes wrong with it."""

    dilation: str | None = None
    emulated: dict[str, float] = field(default_factory=dict)  # goes into usage
    prompt_tokens: Callable[[Any], int] = len
    misbehave: Callable[[int], str] = lambda number: ""
    status: int = 429
    retry_after: str = ""
    short_by: int = 0
    template: tuple[int, int] | None = None  # what /tokenize adds to a chat, and per reply and message after it
    models: tuple[str, ...] = ("fake",)
    api_key: str = ""
    not_ready: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    gate: asyncio.Event | None = None  # every call waits for it before its first token
    end: asyncio.Event | None = None  # and for this one before it ends the body, after [DONE]
    hung: threading.Event = field(default_factory=threading.Event)  # a call has begun to hang
    peers: set[object] = field(default_factory=set)  # connections that calls came over
    url: str = ""

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=1 << 26, middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/v1/models", self._models),
                web.get("/ready", self._ready),
                web.post("/tokenize", self._tokenize),
                web.post("/v1/completions", self._complete),
                web.post("/v1/chat/completions", self._complete),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": {"message": "no key"}}, status=401)
        response: web.StreamResponse = await handler(request)
        return response

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def _ready(self, request: web.Request) -> web.Response:
        if self.not_ready:
            return web.json_response({"error": {"message": self.not_ready}}, status=503)
        if self.dilation is None:
            raise web.HTTPNotFound
        return web.json_response({"status": "ready", "dilation": float(self.dilation)})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if self.template is None:
            raise web.HTTPNotFound
        messages = (await request.json())["messages"]
        words = sum(len(message["content"].split()) for message in messages)
        return web.json_response({"count": words + self.template[0] + self.template[1] * (len(messages) // 2)})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        number = len(self.calls)
        body = msgspec.json.decode(await request.read())
        self.calls.append(body)
        self.headers.append(dict(request.headers))
        self.peers.add(request.transport and request.transport.get_extra_info("peername"))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._answer(request, body, self.misbehave(number))
        finally:
            self.at_once -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
        headers = {"x-stageline-dilation": self.dilation} if self.dilation else {}
        if fault == "refuse":
            headers |= {"Retry-After": self.retry_after} if self.retry_after else {}
            return web.json_response({"error": {"message": "too many"}}, status=self.status, headers=headers)
        if fault == "drop":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        response = web.StreamResponse(headers=headers | {"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if self.gate is not None:
            await self.gate.wait()
        await self._stream(response, body, fault)
        if self.end is not None:
            await self.end.wait()
        await response.write_eof()
        return response

    async def _stream(self, response: web.StreamResponse, body: dict[str, Any], fault: str) -> None:
        chat = "messages" in body
        tokens = body["max_tokens"] - self.short_by
        for i in range(tokens):
            text = "word" if i == 0 else " word"
            piece = {"delta": {"content": text}} if chat else {"text": text}
            reason = "length" if i + 1 == tokens else None
            await event(response, {"choices": [{"index": 0, "finish_reason": reason} | piece]})
            if fault in ("cut", "error", "garbage", "hang") and i == tokens // 2:
                if fault == "error":
                    await event(response, {"error": {"message": "a stage was lost", "type": "server_error"}})
                elif fault == "garbage":
                    await response.write(b"data: {]\n\n")
                elif fault == "hang":
                    self.hung.set()
                    await asyncio.Event().wait()
                return
        usage = {"prompt_tokens": self.prompt_tokens(body.get("prompt", body.get("messages")))}
        usage |= {"completion_tokens": tokens, **self.emulated}
        if body.get("stream_options", {}).get("include_usage"):
            await event(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        if fault == "abort after":
            await response.drain()
            assert response._req is not None and response._req.transport is not None
            response._req.transport.abort()


async def event(response: web.StreamResponse, value: object) -> None:
    """One server-sent event, in a segment of its own."""
    await response.write(b"data: " + msgspec.json.encode(value) + b"\n\n")


@asynccontextmanager
async def serving(fake: Fake) -> AsyncIterator[Fake]:
    """The server on a free port, in this loop."""
    runner = web.AppRunner(fake.app(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


@contextmanager
def serving_beside(fake: Fake) -> Iterator[Fake]:
    """The server in a thread of its own, for clients that block."""
    loop, up = asyncio.new_event_loop(), threading.Event()
    over = asyncio.Event()

    async def serve() -> None:
        async with serving(fake):
            up.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    up.wait()
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
