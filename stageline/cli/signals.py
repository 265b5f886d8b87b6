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
    try:
        before = {number: signal.signal(number, _end) for number in ENDING if _default(number)}
    except ValueError:  # not the main thread, which alone gets signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _default(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL


def _end(number: int, frame: Any) -> None:
    raise Ended(number)
