"""Recordings whose router was killed, or whose disk was full: the next router says in them where they end."""

import contextlib
import fcntl
import logging
from pathlib import Path
from typing import BinaryIO

from stageline.workload.recording import broken_line, is_ending, is_recording

log = logging.getLogger(__name__)
REASON = "the router was killed or its disk was full: what came after the line before is not known"
_PIECE_BYTES = 1 << 16


def hold(file: BinaryIO) -> None:
    """Mark a recording as being written, until it is closed or this process has ended, however it ends."""
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def close_torn(path: Path) -> None:
    """Give a recording that nobody writes and that has no last line one, after its last whole line. Leave everything
    else alone: other files, recordings that are over, those that another router writes, those that can't be written.
    """
    if not is_recording(path):
        return
    with contextlib.suppress(OSError), path.open("r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        whole_bytes, last = _last_line(file)
        if not whole_bytes or is_ending(last):
            return
        file.truncate(whole_bytes)
        file.seek(whole_bytes)
        file.write(broken_line(REASON).encode())
        log.warning("a recording without an end is closed", extra={"recording": path, "reason": REASON})


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """Where the whole lines end, and the last of them; 0 if there is none."""
    size, tail = file.seek(0, 2), b""
    while tail.count(b"\n") < 2 and len(tail) < size:  # the newline before the last line, and the one that ends it
        begin = max(0, size - max(_PIECE_BYTES, 2 * len(tail)))
        file.seek(begin)
        tail = file.read(size - begin)
    body, newline, rest = tail.rpartition(b"\n")
    return (size - len(rest), body.rpartition(b"\n")[2]) if newline else (0, b"")
