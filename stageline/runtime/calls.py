"""Unary calls with a deadline, and what a failed one means."""

from collections.abc import Awaitable
from typing import TypeVar

from grpc import aio

from stageline.wire.errors import error_from

R = TypeVar("R")


async def answer(call: Awaitable[R], place: str) -> R:
    """The reply of a call to `place`. Raises the StagelineError that its failure means."""
    try:
        return await call
    except aio.AioRpcError as error:
        raise error_from(error, place) from None
