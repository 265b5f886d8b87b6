"""Entry point of the console script: Ctrl-C is answered from the first moment on, while the imports take a second."""

import os
import signal
import sys
from collections.abc import Sequence

INTERRUPTED = 130  # what a shell says of a command that SIGINT has ended


def interrupted_code(argv: Sequence[str]) -> int:
    """The exit code after Ctrl-C: it is how `up` ends, unless that was to return by itself."""
    lasts = list(argv[:1]) == ["up"] and not {"--detach", "-d"} & set(argv)
    return 0 if lasts else INTERRUPTED


def main() -> None:
    """Run the command that the process was called with."""
    code = interrupted_code(sys.argv[1:])
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler or code == 0:  # else it is ignored, as in a background job of a shell
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))  # nothing is begun yet, nothing to clear away
    from stageline.cli.main import main as run  # noqa: PLC0415  (slow)

    try:
        signal.signal(signal.SIGINT, before)
        run()
    except KeyboardInterrupt:
        sys.exit(code)
    finally:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on there is nothing to interrupt but the exit
