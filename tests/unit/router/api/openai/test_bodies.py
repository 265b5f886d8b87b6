"""Bodies are bounded one by one, by the context, and together, by the memory that they hold."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from router.api.openai import bodies
from router.api.openai.bodies import BODY_BYTES_PER_TOKEN, LEAST_BODY_BYTES, MAX_BODY_BYTES, BodyReader
from router.api.openai.schema import TokenizeRequest
from stageline.errors import BadInput, Busy


def sent(*parts: bytes, until: asyncio.Event | None = None) -> web.Request:
    """A request whose body comes in these parts, and ends when `until` is set."""

    async def iterate() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
        if until is not None:
            await until.wait()

    return cast(web.Request, SimpleNamespace(content=SimpleNamespace(iter_any=iterate, is_eof=lambda: until is None)))


def prompt_of(body: TokenizeRequest) -> str | None:
    """What the tests use of a body."""
    return body.prompt


def test_the_limit_follows_the_context() -> None:
    assert BodyReader(8192).limit == LEAST_BODY_BYTES + BODY_BYTES_PER_TOKEN * 8192
    assert BodyReader(2**31).limit == MAX_BODY_BYTES


async def test_parts_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = BodyReader(100)
    assert await reader.read(sent(b'{"prompt":', b'"a b"}'), TokenizeRequest, prompt_of) == "a b"
    monkeypatch.setattr(bodies, "LARGE_BODY_BYTES", 4)  # the same in a thread
    assert await reader.read(sent(b'{"prompt":', b'"a b"}'), TokenizeRequest, prompt_of) == "a b"
    with pytest.raises(BadInput, match="body"):
        await reader.read(sent(b"[" * 10_000), TokenizeRequest, prompt_of)


async def test_a_body_beyond_the_limit_is_not_read_on() -> None:
    reader = BodyReader(0)
    with pytest.raises(web.HTTPRequestEntityTooLarge):
        await reader.read(sent(*[bytes(1 << 20)] * 1000), TokenizeRequest, prompt_of)
    assert await reader.read(sent(b"{}"), TokenizeRequest, prompt_of) is None


async def test_bodies_that_fill_the_memory_keep_others_out_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "HELD_BYTES", 100)
    reader, over = BodyReader(100), asyncio.Event()
    slow = [
        asyncio.create_task(reader.read(sent(b"{", bytes(44), until=over), TokenizeRequest, prompt_of)) for _ in "ab"
    ]
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="memory"):
        await reader.read(sent(b'{"prompt":"xyz"}'), TokenizeRequest, prompt_of)
    over.set()
    await asyncio.gather(*slow, return_exceptions=True)
    assert await reader.read(sent(b'{"prompt":"xyz"}'), TokenizeRequest, prompt_of) == "xyz"


async def test_a_body_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.01)
    with pytest.raises(web.HTTPRequestTimeout):
        await BodyReader(0).read(sent(b"{", until=asyncio.Event()), TokenizeRequest, prompt_of)
