"""The OpenAI-compatible HTTP server, in the router's event loop."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import ParamSpec, TypeVar

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

import stageline
from router.api.keys import check_key
from router.api.openai.malformed import SERVER_LOG
from router.api.openai.params import chat_params, chat_text, completion_params
from router.api.openai.replies import CompletionKind, Envelope, error_body
from router.api.openai.schema import ChatRequest, CommonFields, CompletionRequest, TokenizeRequest
from router.api.openai.streaming import stream_reply, whole_reply
from router.live.service import ContextTooLong, LiveService
from stageline.errors import BadInput, StagelineError, UsageError
from stageline.report.spans.context import TRACEPARENT, TRACESTATE, parse_traceparent
from stageline.wire.http_headers import DILATION_HEADER, OUTPUT_TOKENS_HEADER
from stageline.workload.rows import MAX_TOKENS

MAX_BODY_BYTES = 64 << 20
LARGE_BODY_BYTES = 256 << 10  # its tokens are counted in a thread: the event loop serves everybody
BODY_S = 60.0  # how long a client may take to send its body
RETRY_AFTER_S = 1
CLIENT_LEFT = 499  # a status that no client sees
_JSON = "application/json"
A = TypeVar("A")
B = TypeVar("B", bound=msgspec.Struct)
P = ParamSpec("P")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OpenAiServer:
    """The routes, and the port that serves them; 0: any free port. `api_key` empty: no key is required."""

    def __init__(
        self, service: LiveService, registry: CollectorRegistry, *, host: str = "127.0.0.1", port: int = 0,
        api_key: str = "", tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._service, self._names, self._registry = service, service.names, registry
        self._host, self._port, self._api_key, self._tls = host, port, api_key, tls
        self._since = int(time.time())
        self._headers = {DILATION_HEADER: f"{service.dilation:g}"}
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
        # The handler of a client that disconnects is cancelled, which cancels its request in the cluster.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0, logger=SERVER_LOG
        )

    async def start(self) -> str:
        """Binds the port and returns HOST:PORT for clients. Raises UsageError when the port is in use."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls, reuse_port=False, backlog=4096)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                f"HTTP port {self._host}:{self._port} can't be bound ({error.strerror or error}); choose "
                "another --http-port, 0 for any, -1 for none"
            ) from None
        reachable = "127.0.0.1" if self._host in ("0.0.0.0", "::", "") else self._host
        return f"{reachable}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Closes the port and all connections."""
        await self._runner.cleanup()

    @property
    def routes(self) -> list[web.AbstractRoute]:
        """All routes, in the order in which they are matched."""
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

    async def _reply(self, request: web.Request, body: CommonFields, kind: CompletionKind) -> web.StreamResponse:
        exact = _header_tokens(request.headers)
        echo = False
        if isinstance(body, ChatRequest):
            params_list = await _aside(request, chat_params, body, exact, self._service.tokenizer)
        else:
            assert isinstance(body, CompletionRequest)
            params_list = await _aside(request, completion_params, body, exact, self._service.tokenizer)
            echo = bool(body.echo)
        n = 1 if body.n is None else body.n
        if echo and body.stream:
            raise BadInput("echo", True, "a stream can't repeat the prompt", "leave echo out, or do not stream")
        parent = parse_traceparent(request.headers.get(TRACEPARENT), request.headers.get(TRACESTATE, ""))
        reply = self._service.submit(
            params_list, n, priority=body.priority or 0, conversation=body.user or "", parent=parent
        )
        try:
            envelope = Envelope(kind, body.model or self._names.listed[0], streamed=bool(body.stream))
            prompt_tokens = sum(params.prompt_tokens for params in params_list)
            if body.stream:
                usage = bool(body.stream_options and body.stream_options.include_usage)
                return await stream_reply(
                    request, reply, envelope, self._headers, prompt_tokens=prompt_tokens, usage=usage
                )
            prefixes = [(params.prompt_text or "") if echo else "" for params in params_list for _ in range(n)]
            text = await whole_reply(
                reply, envelope, prompt_tokens=prompt_tokens, dilation=self._service.dilation, prefixes=prefixes
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
        ids = await _aside(request, self._service.tokenizer.ids, text)
        limit = self._service.max_context_tokens
        return _json({"count": len(ids), "max_model_len": None if limit >= MAX_TOKENS else limit, "tokens": ids})

    async def _health(self, request: web.Request) -> web.Response:
        """200 as long as the process lives."""
        return web.Response()

    async def _ready(self, request: web.Request) -> web.Response:
        """200 while requests are accepted and get on, else 503 with the reason."""
        supervisor = self._service.supervisor
        degraded = supervisor.degraded
        if supervisor.ready and not degraded:
            return _json({"status": "ready", "dilation": self._service.dilation})
        body = error_body(degraded or supervisor.reason, "server_error", code="503")
        return web.Response(status=503, body=body, content_type=_JSON, headers={"Retry-After": str(RETRY_AFTER_S)})

    async def _version(self, request: web.Request) -> web.Response:
        """The package's version."""
        return _json({"version": stageline.__version__})

    async def _metrics(self, request: web.Request) -> web.Response:
        """The same metrics as on the router's metrics port."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    # -- errors

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Checks keys, and answers every error in the format of the OpenAI API."""
        try:
            if self._api_key and request.path.startswith(("/v1/", "/tokenize")):
                check_key(request.headers.get("Authorization", ""), self._api_key)
            return await handler(request)
        except StagelineError as error:
            return refusal(error)
        except ConnectionResetError:  # the client disconnected during its reply
            return web.Response(status=CLIENT_LEFT)
        except web.HTTPException as error:
            code = error.status
            kind = "invalid_request_error" if code < 500 else "server_error"
            return web.Response(
                status=code, body=error_body(error.reason, kind, code=str(code)), content_type=_JSON,
                headers={"Allow": error.headers["Allow"]} if "Allow" in error.headers else None,
            )  # fmt: skip


def refusal(error: StagelineError) -> web.Response:
    """The reply for an error, in the format of the OpenAI API."""
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
    """Decodes the request's JSON. Raises BadInput with the place of the error, or HTTPRequestTimeout."""
    try:
        async with asyncio.timeout(BODY_S):
            data = await request.read()
        return msgspec.json.decode(data, type=kind)
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"The body did not arrive within {BODY_S:g} s") from None
    except (msgspec.MsgspecError, ValueError, RecursionError, web.RequestPayloadError) as error:
        raise BadInput("body", None, str(error), "send JSON as the API describes it") from None


async def _aside(request: web.Request, work: Callable[P, A], *args: P.args, **more: P.kwargs) -> A:
    """The result of work that a large body makes long."""
    if (request.content_length or MAX_BODY_BYTES) > LARGE_BODY_BYTES:
        return await asyncio.to_thread(work, *args, **more)
    return work(*args, **more)


def _header_tokens(headers: Mapping[str, str]) -> int:
    """The exact number of output tokens; 0: not given. Raises BadInput."""
    text = headers.get(OUTPUT_TOKENS_HEADER, "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadInput(OUTPUT_TOKENS_HEADER, text, "not a whole number of at most 9 digits", "write it like 128")
    return int(text)


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type=_JSON)
