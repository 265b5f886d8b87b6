"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it writes is closed, and what it started is stopped, first."""

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


@contextmanager
def until_signalled(*, well: bool = True) -> Iterator[None]:
    """The block lasts until SIGINT, SIGTERM or SIGHUP, which is a good end of it, or without `well` is passed on.

    It is interrupted once, even where a shell has started the process with SIGINT ignored. Signals that come later are
    ignored: they must not keep it from clearing away what it has started.
    """
    received: list[int] = []

    def end(number: int, frame: Any) -> None:
        received.append(number)
        ignore_endings()
        raise KeyboardInterrupt

    hangup = (signal.SIGHUP,) if _default(signal.SIGHUP) else ()
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, *hangup)}
    try:
        yield
    except KeyboardInterrupt:
        if not (received and well):
            raise
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is end:  # else it is ignored by now
                signal.signal(number, handler)


def ignore_endings() -> None:
    """From now on this process ends by itself."""
    for number in (signal.SIGINT, *ENDING):
        signal.signal(number, signal.SIG_IGN)


def _default(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL
