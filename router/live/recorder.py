"""Writes a live session as a workload that replays it."""

import contextlib
import errno
import itertools
import logging
import os
from pathlib import Path
from typing import BinaryIO

from router.live.torn import close_torn, hold
from stageline.engine.types import Request
from stageline.errors import UsageError
from stageline.workload.recording import RecordingHeader, broken_line, cancel_line, end_line, header_line, request_line

log = logging.getLogger(__name__)


class Recorder:
    """One file per session: FILE, FILE.1, FILE.2, ..., the first name that is free.

    A router that comes back after a crash keeps what was recorded, and says in it that it ends there. A session without
    requests leaves no file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = 0
        self._file: BinaryIO | None = None
        self._bytes = 0  # of whole lines
        self._header: RecordingHeader | None = None
        self.failures = 0  # recordings that ended early because a line could not be written
        if not path.parent.is_dir():
            raise UsageError(f"--record {path}: there is no directory {path.parent}")
        if path.is_dir():
            raise UsageError(f"--record {path}: is a directory; give a file in it")
        for number in itertools.count():
            if not (earlier := self._name(number)).exists():
                break
            close_torn(earlier)

    def begin(self, header: RecordingHeader) -> None:
        """A session has opened."""
        self._header = header

    def request(self, request: Request) -> None:
        """A request has arrived."""
        self._line(request_line(request))

    def cancel(self, index: int, at_ns: int) -> None:
        """A client has left."""
        self._line(cancel_line(index, at_ns))

    def end(self, digest: str | None, reason: str = "") -> Path | None:
        """The session is over; its file, if there is one. No digest: it broke off, for that reason."""
        if self._file is not None:
            self._line(end_line(digest) if digest else broken_line(reason))
        file, self._file, self._header = self._file, None, None
        if file is None:
            return None
        file.close()
        return Path(file.name)

    def _line(self, line: str) -> None:
        if self._header is None:
            return  # the recording has ended early
        try:
            if self._file is None:
                self._file, self._bytes = self._open(), 0
                self._write(self._file, header_line(self._header))
            self._write(self._file, line)
        except OSError as error:
            self._give_up(error)

    def _write(self, file: BinaryIO, line: str) -> None:
        """The whole line. Raises OSError; what of it was written is taken away by `_give_up`."""
        data = line.encode()
        if file.write(data) != len(data):  # unbuffered: on a full disk the system may take a part
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._bytes += len(data)

    def _give_up(self, error: OSError) -> None:
        """End the recording after its last whole line, without a digest; serving goes on."""
        log.error(
            "the recording ends here, without a digest: it can't be written",
            extra={"recording": self._file.name if self._file else self._path, "error": error.strerror or str(error)},
        )
        self.failures += 1
        file, self._file, self._header = self._file, None, None
        if file is not None:
            with contextlib.suppress(OSError), file:
                file.truncate(self._bytes)

    def _name(self, number: int) -> Path:
        return Path(f"{self._path}.{number}") if number else self._path

    def _open(self) -> BinaryIO:
        """The next file, unbuffered: what was written is there whatever happens to this process. Raises OSError."""
        while True:
            path = self._name(self._files)
            self._files += 1
            with contextlib.suppress(FileExistsError):
                file = path.open("xb", buffering=0)
                hold(file)
                if path != self._path:
                    log.warning("earlier recordings are kept", extra={"recording": path})
                return file
