"""The OpenAI-compatible HTTP server, in the router's event loop."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

import stageline
from router.api.generation import GenerationParams
from router.api.keys import AccessControl, RateLimited
from router.api.openai.bodies import BodyReader
from router.api.openai.embeddings import MAX_INPUTS, embedding_params, embeddings_document
from router.api.openai.idle import IdleConnections
from router.api.openai.malformed import SERVER_LOG
from router.api.openai.params import chat_params, chat_text, completion_params
from router.api.openai.replies import CompletionKind, Envelope, error_body
from router.api.openai.schema import (
    ChatRequest,
    CommonFields,
    CompletionRequest,
    EmbeddingRequest,
    StreamOptions,
    TokenizeRequest,
)
from router.api.openai.streaming import ended, stream_reply, whole_reply
from router.api.prompts import ContextTooLong
from router.live.models import ServedModel
from router.live.service import LiveService
from router.page.index import CONTENT_POLICY
from router.page.site import Page
from stageline.errors import BadInput, StagelineError, UsageError
from stageline.report.spans.context import TRACEPARENT, TRACESTATE, TraceContext, parse_traceparent
from stageline.wire.http_headers import DILATION_HEADER, OUTPUT_TOKENS_HEADER
from stageline.workload.rows import MAX_TOKENS

RETRY_AFTER_S = 1
CLIENT_LEFT = 499  # a status that no client sees
_JSON = "application/json"
_GUARDED = ("/v1/", "/tokenize")
_MANY_IDS = 1 << 14
MAX_ECHOED_CHARACTERS = 64 << 20  # of all choices of a reply
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OpenAiServer:
    """The routes, and the port that serves them; 0: any free port. Without a `page` there is nothing for people."""

    def __init__(
        self, service: LiveService, registry: CollectorRegistry, *, host: str = "127.0.0.1", port: int = 0,
        access: AccessControl | None = None, tls: ssl.SSLContext | None = None, page: Page | None = None,
    ) -> None:  # fmt: skip
        self._service, self._served, self._registry = service, service.models, registry
        self._host, self._port, self._access, self._tls = host, port, access or AccessControl(), tls
        self._page = page
        self._bodies = BodyReader(service.models.max_context_tokens)
        self._since = int(time.time())
        self._headers = {DILATION_HEADER: f"{service.dilation:g}"}
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._complete),
                web.post("/v1/embeddings", self._embed),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{name:.+}", self._model),
                web.post("/tokenize", self._tokenize),
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                web.get("/status", self._status),
                web.get("/", self._index),
            ]
        )
        # The handler of a client that disconnects is cancelled, which cancels its request in the cluster.
        self._idle, self._sweeping = IdleConnections(), set[asyncio.Task[None]]()
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
        assert self._runner.server is not None
        self._sweeping.add(asyncio.create_task(self._idle.keep_sweeping(self._runner.server)))
        reachable = "127.0.0.1" if self._host in ("0.0.0.0", "::", "") else self._host
        return f"{reachable}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Closes the port and all connections."""
        for task in self._sweeping:
            task.cancel()
        await self._runner.cleanup()

    @property
    def routes(self) -> list[web.AbstractRoute]:
        """All routes, in the order in which they are matched."""
        return list(self._runner.app.router.routes())

    # -- completions

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        """A chat's reply, whole or as server-sent events that `[DONE]` ends."""
        exact = _header_tokens(request.headers)

        def use(body: ChatRequest) -> tuple[ChatRequest, ServedModel, list[GenerationParams]]:
            model = self._served.find(body.model)
            return body, model, chat_params(body, exact, model.reader)

        return await self._reply(request, *await self._bodies.read(request, ChatRequest, use), "chat")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        """Completions of one prompt or several, whole or as server-sent events that `[DONE]` ends."""
        exact = _header_tokens(request.headers)

        def use(body: CompletionRequest) -> tuple[CompletionRequest, ServedModel, list[GenerationParams]]:
            model = self._served.find(body.model)
            return body, model, completion_params(body, exact, model.reader)

        return await self._reply(request, *await self._bodies.read(request, CompletionRequest, use), "completion")

    async def _reply(
        self, request: web.Request, body: CommonFields, model: ServedModel, params_list: list[GenerationParams],
        kind: CompletionKind,
    ) -> web.StreamResponse:  # fmt: skip
        n = 1 if body.n is None else body.n
        prefixes = _prefixes(body, params_list, n)
        reply = await self._service.submit(
            model, params_list, n, priority=body.priority or 0, conversation=body.user or "", parent=_parent(request),
            gaps=bool(body.stream_options and body.stream_options.include_token_gaps),
        )  # fmt: skip
        try:
            envelope = Envelope(kind, body.model or model.names.listed[0], streamed=bool(body.stream))
            prompt_tokens = sum(params.prompt_tokens for params in params_list)
            if body.stream:
                options = body.stream_options or StreamOptions()
                return await stream_reply(
                    request, reply, envelope, self._headers, prompt_tokens=prompt_tokens, options=options
                )
            text = await whole_reply(
                reply, envelope, prompt_tokens=prompt_tokens, dilation=self._service.dilation, prefixes=prefixes
            )
            return web.Response(body=text, content_type=_JSON, headers=self._headers)
        finally:
            reply.close()

    async def _embed(self, request: web.Request) -> web.Response:
        """Synthetic embeddings of one input or several, each for the cost of its prefill."""

        def use(body: EmbeddingRequest) -> tuple[EmbeddingRequest, ServedModel, list[GenerationParams]]:
            model = self._served.find(body.model)
            return body, model, embedding_params(body, model.reader)

        body, model, inputs = await self._bodies.read(request, EmbeddingRequest, use)
        reply = await self._service.submit(
            model, inputs, 1, priority=body.priority or 0, conversation=body.user or "", parent=_parent(request),
            most=MAX_INPUTS,
        )  # fmt: skip
        try:
            await ended(reply)
        finally:
            reply.close()
        text = await asyncio.to_thread(embeddings_document, body, body.model or model.names.listed[0], inputs)
        return web.Response(body=text, content_type=_JSON, headers=self._headers)

    # -- the rest

    async def _models(self, request: web.Request) -> web.Response:
        """The names of `--served-model-name`, by default the plan's model or those of all pools."""
        return _json({"object": "list", "data": [self._card(name) for name in self._served.listed]})

    async def _model(self, request: web.Request) -> web.Response:
        """One of them, `max_model_len` included; Hugging Face ids are aliases."""
        name = request.match_info["name"]
        return _json(self._card(name))

    def _card(self, name: str) -> dict[str, object]:
        limit = self._served.find(name).max_context_tokens
        card = {"id": name, "object": "model", "created": self._since, "owned_by": "stageline", "root": name}
        return card | {"max_model_len": None if limit >= MAX_TOKENS else limit}

    async def _tokenize(self, request: web.Request) -> web.Response:
        """A prompt's or a chat's `count` and `tokens`, by the router's tokenizer."""

        def use(body: TokenizeRequest) -> tuple[list[int], int]:
            model = self._served.find(body.model)
            reader, text = model.reader, body.prompt
            if text is None:
                text = chat_text(body.messages or [], reader, body.tools or ())
            reader.check(reader.tokenizer.least(text))
            return reader.tokenizer.ids(text), model.max_context_tokens

        ids, limit = await self._bodies.read(request, TokenizeRequest, use)
        found = {"count": len(ids), "max_model_len": None if limit >= MAX_TOKENS else limit, "tokens": ids}
        return _json(found) if len(ids) < _MANY_IDS else await asyncio.to_thread(_json, found)

    async def _health(self, request: web.Request) -> web.Response:
        """200 as long as the process lives."""
        return web.Response()

    async def _ready(self, request: web.Request) -> web.Response:
        """200 while requests are accepted and get on, else 503 with the reason."""
        supervisor = self._service.supervisor
        degraded = supervisor.degraded
        if supervisor.ready and not degraded:
            return _json({"status": "ready", "dilation": self._service.dilation})
        body = error_body(degraded or supervisor.why_not, "server_error")
        return web.Response(status=503, body=body, content_type=_JSON, headers={"Retry-After": str(RETRY_AFTER_S)})

    async def _version(self, request: web.Request) -> web.Response:
        """The package's version."""
        return _json({"version": stageline.__version__})

    async def _metrics(self, request: web.Request) -> web.Response:
        """The same metrics as on the router's metrics port."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def _status(self, request: web.Request) -> web.Response:
        """What the page shows: stages, rates and latencies since the last look, as JSON."""
        if self._page is None:
            raise web.HTTPNotFound
        return web.Response(body=await self._page.watch.view(request.host), content_type=_JSON)

    async def _index(self, request: web.Request) -> web.Response:
        """A page for people: what runs here, and what it is doing."""
        if self._page is None:
            raise web.HTTPNotFound
        headers = {"Content-Security-Policy": CONTENT_POLICY}
        return web.Response(text=self._page.text(self.routes), content_type="text/html", headers=headers)

    # -- errors

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Checks keys, and answers every error in the format of the OpenAI API."""
        try:
            if request.path.startswith(_GUARDED):
                given = request.headers.get("Authorization", "")
                if request.method == "POST":
                    self._access.admit(given, request.remote or "")
                else:
                    self._access.check(given)
            with self._idle.request(request):
                return await handler(request)
        except StagelineError as error:
            return refusal(error)
        except ConnectionResetError:  # the client disconnected during its reply
            return web.Response(status=CLIENT_LEFT)
        except web.HTTPException as error:
            kind = "invalid_request_error" if error.status < 500 else "server_error"
            return web.Response(
                status=error.status, body=error_body(error.reason, kind), content_type=_JSON,
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
    wait_s = error.retry_after_s if isinstance(error, RateLimited) else RETRY_AFTER_S
    headers = {"Retry-After": str(wait_s)} if error.retry else None
    body = error_body(str(error), error.error_type, code=code, param=param)
    return web.Response(status=error.http_status, body=body, content_type=_JSON, headers=headers)


def _prefixes(body: CommonFields, params_list: list[GenerationParams], n: int) -> list[str]:
    """What the text of each choice begins with: the prompt, if it is to be repeated. Raises BadInput."""
    if not (isinstance(body, CompletionRequest) and body.echo):
        return [""] * (n * len(params_list))
    if body.stream:
        raise BadInput("echo", True, "a stream can't repeat the prompt", "leave echo out, or do not stream")
    texts = [params.prompt_text or "" for params in params_list]
    if n * sum(map(len, texts)) > MAX_ECHOED_CHARACTERS:
        raise BadInput("echo", True, f"more than {MAX_ECHOED_CHARACTERS} characters would be repeated", "lower n")
    return [text for text in texts for _ in range(n)]


def _parent(request: web.Request) -> TraceContext | None:
    return parse_traceparent(request.headers.get(TRACEPARENT), request.headers.get(TRACESTATE, ""))


def _header_tokens(headers: Mapping[str, str]) -> int:
    """The exact number of output tokens; 0: not given. Raises BadInput."""
    text = headers.get(OUTPUT_TOKENS_HEADER, "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadInput(OUTPUT_TOKENS_HEADER, text, "not a whole number of at most 9 digits", "write it like 128")
    return int(text)


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type=_JSON)
