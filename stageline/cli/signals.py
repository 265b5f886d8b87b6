"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it writes is closed before it ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal that ends the process; `exit_code` is what a shell says of it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Raise Ended in the block at SIGTERM or SIGHUP, unless the process ignores it, as it does under nohup."""
    received: list[int] = []

    def end(number: int, frame: Any) -> None:
        received.append(number)
        raise Ended(number)

    try:
        before = {number: signal.signal(number, end) for number in ENDING if _default(number)}
    except ValueError:  # not the main thread, which alone gets signals
        before = {}
    try:
        yield
    except BaseException:
        if received:  # an event loop may make a cancellation of it
            raise Ended(received[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _default(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL
