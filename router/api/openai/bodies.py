"""Reads the bodies of requests: bounded one by one, and by what all of them hold in memory at once."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiohttp import web

from stageline.errors import BadInput, Busy

BODY_S = 60.0  # how long a client may take to send its body
LEAST_BODY_BYTES = 8 << 20  # room for instructions, tools and images beside the text
BODY_BYTES_PER_TOKEN = 16  # of the model's context: the longest token id with its comma, or escaped text
MAX_BODY_BYTES = 64 << 20
HELD_BYTES = 256 << 20  # of all bodies that are read and not yet counted
LARGE_BODY_BYTES = 256 << 10  # is decoded and counted in a thread: the event loop serves everybody
A = TypeVar("A")
B = TypeVar("B", bound=msgspec.Struct)


class BodyReader:
    """Reads and decodes bodies of at most `limit` bytes."""

    def __init__(self, context_tokens: int) -> None:
        self.limit = min(MAX_BODY_BYTES, LEAST_BODY_BYTES + BODY_BYTES_PER_TOKEN * context_tokens)
        self._held = 0

    async def read(self, request: web.Request, kind: type[B], use: Callable[[B], A]) -> A:
        """What `use` makes of the decoded body; both happen in a thread if the body is large.

        Raises BadInput with the place of the error, Busy while other bodies fill the memory, what `use` raises,
        HTTPRequestTimeout or HTTPRequestEntityTooLarge.
        """
        data = bytearray()
        try:
            # Most bodies are here with their head: then no timer has to be set, cancelled and forgotten.
            async with asyncio.timeout(None if request.content.is_eof() else BODY_S):
                async for part in request.content.iter_any():
                    data += part
                    self._hold(len(part), len(data))
            if len(data) > LARGE_BODY_BYTES:
                return await asyncio.to_thread(_used, data, kind, use)
            return _used(data, kind, use)
        except TimeoutError:
            raise web.HTTPRequestTimeout(reason=f"The body did not arrive within {BODY_S:g} s") from None
        except web.RequestPayloadError as error:
            raise BadInput("body", None, str(error), "send JSON as the API describes it") from None
        finally:
            self._held -= len(data)

    def _hold(self, more: int, length: int) -> None:
        self._held += more
        if length > self.limit:
            reason = f"The body is longer than {self.limit} bytes, more than the model's context can need"
            raise web.HTTPRequestEntityTooLarge(self.limit, length, reason=reason)
        if self._held > HELD_BYTES:
            raise Busy("the bodies of other requests fill the router's memory")


def _used(data: bytearray, kind: type[B], use: Callable[[B], A]) -> A:
    try:
        body = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput("body", None, str(error), "send JSON as the API describes it") from None
    return use(body)
