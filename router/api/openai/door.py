"""The HTTP server, in the router's event loop."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

import stageline
from router.api.keys import check_key
from router.api.openai.malformed import SERVER_LOG
from router.api.openai.params import chat_params, chat_text, completion_params
from router.api.openai.replies import Head, Kind, error_body
from router.api.openai.schema import ChatRequest, Common, CompletionRequest, TokenizeRequest
from router.api.openai.streaming import DILATION, document, stream
from router.live.service import ContextTooLong, LiveService
from stageline.errors import BadInput, StagelineError, UsageError
from stageline.report.spans.context import TRACEPARENT, TRACESTATE, parse_traceparent
from stageline.units import shorten
from stageline.workload.rows import MAX_TOKENS

MAX_BODY_BYTES = 64 << 20
BODY_S = 60.0  # a client that does not finish its request is let go
OUTPUT_TOKENS = "x-stageline-output-tokens"
_MAX_DIGITS = 9  # of its value
RETRY_AFTER_S = 1
CLIENT_LEFT = 499  # a status that nobody sees
_JSON = "application/json"
B = TypeVar("B", bound=msgspec.Struct)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door:
    """Routes of the API. `api_key` empty: none is asked for."""

    def __init__(
        self, service: LiveService, registry: CollectorRegistry, *, api_key: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self._service, self._names, self._registry = service, service.names, registry
        self._api_key, self._tls = api_key, tls
        self._since = int(time.time())
        self._headers = {DILATION: f"{service.dilation:g}"}
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._complete),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{name:.+}", self._model),
                web.post("/tokenize", self._tokenize),
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
            ]
        )
        # A handler whose client has left is cancelled, so that its request leaves the cluster.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0, logger=SERVER_LOG
        )

    async def start(self, host: str, port: int) -> int:
        """Binds; returns the port. Raises UsageError when it is in use."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls, reuse_port=False, backlog=4096)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                f"HTTP port {host}:{port} can't be bound ({error.strerror or error}); choose another --http-port, 0 "
                "for any, -1 for none"
            ) from None
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Ends all connections."""
        await self._runner.cleanup()

    @property
    def routes(self) -> list[web.AbstractRoute]:
        """All of them, in the order in which they are tried."""
        return list(self._runner.app.router.routes())

    # -- completions

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        """A chat's reply, whole or as server-sent events that `[DONE]` ends."""
        body = await _body(request, ChatRequest)
        self._service.check_model(body.model)
        return await self._reply(request, body, "chat")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        """Completions of one prompt or several, whole or as server-sent events that `[DONE]` ends."""
        body = await _body(request, CompletionRequest)
        self._service.check_model(body.model)
        return await self._reply(request, body, "completion")

    async def _reply(self, request: web.Request, body: Common, kind: Kind) -> web.StreamResponse:
        exact = _header_tokens(request.headers)
        echo = False
        if isinstance(body, ChatRequest):
            params_list = chat_params(body, exact, self._service.tokenizer)
        else:
            assert isinstance(body, CompletionRequest)
            params_list = completion_params(body, exact, self._service.tokenizer)
            echo = bool(body.echo)
        n = 1 if body.n is None else body.n
        if echo and body.stream:
            raise BadInput("echo", True, "the prompt is not streamed back", "leave echo out, or do not stream")
        parent = parse_traceparent(request.headers.get(TRACEPARENT), request.headers.get(TRACESTATE, ""))
        reply = self._service.submit(
            params_list, n, priority=body.priority or 0, session=body.user or "", parent=parent
        )
        try:
            head = Head(kind, body.model or self._names.listed[0], streamed=bool(body.stream))
            prompt_tokens = sum(w.prompt_tokens for w in params_list)
            if body.stream:
                usage = bool(body.stream_options and body.stream_options.include_usage)
                return await stream(request, reply, head, self._headers, prompt_tokens=prompt_tokens, usage=usage)
            prefixes = [(w.echo or "") if echo else "" for w in params_list for _ in range(n)]
            text = await document(
                reply, head, prompt_tokens=prompt_tokens, dilation=self._service.dilation, echo=prefixes
            )
            return web.Response(body=text, content_type=_JSON, headers=self._headers)
        finally:
            reply.close()

    # -- the rest

    async def _models(self, request: web.Request) -> web.Response:
        """The names of `--served-model-name`, by default the plan's model."""
        return _json({"object": "list", "data": [self._card(name) for name in self._names.listed]})

    async def _model(self, request: web.Request) -> web.Response:
        """One of them, `max_model_len` included; Hugging Face ids are aliases."""
        name = request.match_info["name"]
        self._service.check_model(name)
        return _json(self._card(name))

    def _card(self, name: str) -> dict[str, object]:
        limit = self._service.max_context_tokens
        card = {"id": name, "object": "model", "created": self._since, "owned_by": "stageline", "root": name}
        return card | {"max_model_len": None if limit >= MAX_TOKENS else limit}

    async def _tokenize(self, request: web.Request) -> web.Response:
        """A prompt's or a chat's `count` and `tokens`, by the router's tokenizer."""
        body = await _body(request, TokenizeRequest)
        self._service.check_model(body.model)
        text = body.prompt if body.prompt is not None else chat_text(body.messages or [])
        ids = self._service.tokenizer.ids(text)
        limit = self._service.max_context_tokens
        return _json({"count": len(ids), "max_model_len": None if limit >= MAX_TOKENS else limit, "tokens": ids})

    async def _health(self, request: web.Request) -> web.Response:
        """200 as long as the process lives."""
        return web.Response()

    async def _ready(self, request: web.Request) -> web.Response:
        """200 when requests are taken, else 503 with the reason."""
        keeper = self._service.keeper
        if keeper.ready:
            return _json({"status": "ready", "dilation": self._service.dilation})
        body = error_body(keeper.reason, "server_error", code="503")
        return web.Response(status=503, body=body, content_type=_JSON, headers={"Retry-After": str(RETRY_AFTER_S)})

    async def _version(self, request: web.Request) -> web.Response:
        """The package's version."""
        return _json({"version": stageline.__version__})

    async def _metrics(self, request: web.Request) -> web.Response:
        """What the router's metrics port answers, too."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    # -- errors

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Keys, and every error as the real API words it."""
        try:
            if self._api_key and request.path.startswith(("/v1/", "/tokenize")):
                check_key(request.headers.get("Authorization", ""), self._api_key)
            return await handler(request)
        except StagelineError as error:
            return refusal(error)
        except ConnectionResetError:  # the client left while its reply was on its way to it
            return web.Response(status=CLIENT_LEFT)
        except web.HTTPException as error:
            code = error.status
            kind = "invalid_request_error" if code < 500 else "server_error"
            return web.Response(
                status=code, body=error_body(error.reason, kind, code=str(code)), content_type=_JSON,
                headers={"Allow": error.headers["Allow"]} if "Allow" in error.headers else None,
            )  # fmt: skip


class HttpDoor:
    """A door and where it is."""

    def __init__(self, door: Door, host: str, port: int) -> None:
        self._door, self._host, self._port = door, host, port

    async def start(self) -> str:
        """Binds; returns host:port. Raises UsageError when the port is in use."""
        port = await self._door.start(self._host, self._port)
        reachable = "127.0.0.1" if self._host in ("0.0.0.0", "::", "") else self._host
        return f"{reachable}:{port}"

    async def stop(self) -> None:
        """Ends all connections."""
        await self._door.stop()


def refusal(error: StagelineError) -> web.Response:
    """The reply to a request that is not served, worded as the real API does."""
    code: str | None = {404: "model_not_found", 401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(
        error.http_status
    )
    if isinstance(error, ContextTooLong):
        code = "context_length_exceeded"
    param = error.place if isinstance(error, BadInput) and not isinstance(error, ContextTooLong) else None
    if error.http_status == 404:
        param = "model"
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.retry else None
    body = error_body(str(error), error.error_type, code=code, param=param)
    return web.Response(status=error.http_status, body=body, content_type=_JSON, headers=headers)


async def _body(request: web.Request, kind: type[B]) -> B:
    """The request's JSON. Raises BadInput, saying where it is wrong, or HTTPRequestTimeout."""
    try:
        async with asyncio.timeout(BODY_S):
            data = await request.read()
        return msgspec.json.decode(data, type=kind)
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"The body did not come within {BODY_S:g} s") from None
    except (msgspec.MsgspecError, ValueError, RecursionError, web.RequestPayloadError) as error:
        raise BadInput("body", None, str(error), "send JSON as the API describes it") from None


def _header_tokens(headers: Mapping[str, str]) -> int:
    text = headers.get(OUTPUT_TOKENS, "0")
    if not (text.isascii() and text.isdigit()):
        raise BadInput(OUTPUT_TOKENS, text, "not a number of tokens", "write it like 128")
    if len(text) > _MAX_DIGITS:
        raise BadInput(OUTPUT_TOKENS, shorten(text, 40), "too large", f"give at most {_MAX_DIGITS} digits")
    return int(text)


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type=_JSON)
