"""Asks a server, before load is sent, for its model, dilation and chat template."""

import asyncio
from fractions import Fraction

import aiohttp
import msgspec

from stageline.errors import BadInput, Busy, Unavailable, UsageError
from stageline.load.conversation import Template
from stageline.load.sse import error_text
from stageline.units import parse_ratio
from stageline.wire.http_headers import DILATION_HEADER

_ANSWER_S = 30.0
WORD = "able"  # one token in common vocabularies


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the server serves. `dilation`: wall time per emulated time; None: not stated, so it runs in wall time."""

    model: str
    dilation: Fraction | None = None
    template: Template | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model] = []


class _Ready(msgspec.Struct):
    dilation: float | None = None


class _Tokenized(msgspec.Struct):
    count: int


class _Answer(msgspec.Struct):
    status: int
    body: bytes
    dilation: str | None


class _Refusal(msgspec.Struct):
    error: object = None


def _said(body: bytes) -> str:
    """What a body says: the message of an error of the OpenAI API, else its beginning."""
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.MsgspecError:
        error = None
    return error_text(error) if error else body[:200].decode("utf-8", "replace")


async def probe(session: aiohttp.ClientSession, url: str, model: str, *, chat: bool = False) -> ServerFacts:
    """Asks the server at `url` (without /v1); for chats also for its template.

    Raises Unavailable, Busy, UsageError or BadInput.
    """
    listed = await _get(session, url, "/v1/models")
    if listed.status in (401, 403):
        raise UsageError(f"{url} requires an API key; give it with --api-key")
    if not model:
        model = _first_model(url, listed)
    ready = await _get(session, url, "/ready")
    if ready.status == 503:
        raise Busy(f"{url} is not ready: {_said(ready.body)}; try again later")
    template = await probe_template(session, url, model) if chat else None
    return ServerFacts(model=model, dilation=_dilation(listed, ready), template=template)


def _first_model(url: str, listed: _Answer) -> str:
    try:
        models = msgspec.json.decode(listed.body, type=_Models).data if listed.status == 200 else []
    except (msgspec.MsgspecError, ValueError):
        models = []
    if not models:
        raise UsageError(f"{url}/v1/models lists no model (HTTP {listed.status}); give one with --model")
    return models[0].id


def _dilation(listed: _Answer, ready: _Answer) -> Fraction | None:
    text = listed.dilation or ready.dilation
    if text is None and ready.status == 200:
        try:
            value = msgspec.json.decode(ready.body, type=_Ready).dilation
        except (msgspec.MsgspecError, ValueError):
            return None
        text = None if value is None else f"{value:.12f}".rstrip("0").rstrip(".")
    return None if text is None else header_dilation(text)


async def probe_template(session: aiohttp.ClientSession, url: str, model: str) -> Template:
    """What the server's chat template adds, measured with its /tokenize; the defaults where it has none."""
    chat = [
        {"role": "user", "content": WORD},
        {"role": "assistant", "content": WORD},
        {"role": "user", "content": WORD},
    ]
    first, third = [await _count(session, url, {"model": model, "messages": chat[:n]}) for n in (1, 3)]
    if first is None or third is None:
        return Template()
    return Template(max(0, first - 1), max(0, third - first - 2))


async def _count(session: aiohttp.ClientSession, url: str, body: dict[str, object]) -> int | None:
    try:
        async with asyncio.timeout(_ANSWER_S), session.post(url + "/tokenize", json=body) as response:
            return msgspec.json.decode(await response.read(), type=_Tokenized).count if response.status == 200 else None
    except (msgspec.MsgspecError, ValueError, TimeoutError, aiohttp.ClientError, OSError):
        return None


def header_dilation(text: str) -> Fraction:
    """Parses the dilation header. Raises BadInput."""
    try:
        return parse_ratio(text, DILATION_HEADER)
    except BadInput:
        raise BadInput(f"header {DILATION_HEADER}", text, "the server's dilation is not a positive number") from None


async def _get(session: aiohttp.ClientSession, url: str, path: str) -> _Answer:
    try:
        async with asyncio.timeout(_ANSWER_S), session.get(url + path) as response:
            return _Answer(response.status, await response.content.read(1 << 20), response.headers.get(DILATION_HEADER))
    except aiohttp.InvalidURL:
        raise BadInput("--url", url, "not a URL", "write it like http://localhost:8000") from None
    except TimeoutError:
        raise Unavailable(f"{url} accepts connections but does not answer within {_ANSWER_S:g} s") from None
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        raise Unavailable(f"{url}: its certificate is not trusted ({why}); give its authority with --tls-ca") from None
    except aiohttp.ClientConnectorSSLError:
        raise Unavailable(f"{url} does not speak TLS; write http://, or correct --url") from None
    except aiohttp.ServerDisconnectedError as error:
        raise Unavailable(f"{url} ends the connection ({error}); if it wants TLS, write https://") from None
    except (aiohttp.ClientError, OSError) as error:
        way_out = "start one with stageline up, or correct --url"
        raise Unavailable(f"no server answers at {url} ({_why(error)}); {way_out}") from None


def _why(error: Exception) -> str:
    cause = getattr(error, "os_error", error)
    return getattr(cause, "strerror", None) or str(cause) or type(error).__name__
