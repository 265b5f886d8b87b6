"""A run that is done again after a death: what its client has seen already is compared, what is new goes on (L8')."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from stageline.engine.types import Observer
from stageline.errors import RunFailed, Unavailable
from stageline.sync.resumed import Resumed

T = TypeVar("T")


async def _nothing() -> None:
    """Servers of others mend themselves."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a run may be done again. `again` is called before each time, with why the one before ended; then
    `mend` does what may help.
    """

    retries: int = 0
    again: Callable[[str], None] = lambda _: None
    mend: Callable[[], Awaitable[None]] = _nothing


async def attempted(
    attempt: Callable[[Observer], Awaitable[T]],
    observer: Observer,
    retry: Retry,
    healthy: Callable[[], Awaitable[object]],
) -> T:
    """The result of the first attempt that comes to its end. After a death, waits until all servers are `healthy`.

    Raises the StagelineError of the last attempt. What waiting can't mend is not tried again.
    """
    if not retry.retries:
        return await attempt(observer)
    resumed, left = Resumed(observer), retry.retries
    while True:
        resumed.begin()
        try:
            return await attempt(resumed)
        except (RunFailed, Unavailable) as error:
            if not left:
                resumed.give_up()
                raise
            left -= 1
            retry.again(str(error))
            try:
                await retry.mend()
                await healthy()
            except Unavailable:
                resumed.give_up()
                raise error from None
