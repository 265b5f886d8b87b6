"""Writes a live session as a workload that replays it."""

import contextlib
import logging
from pathlib import Path
from typing import TextIO

from stageline.engine.types import Request
from stageline.errors import RunFailed, UsageError
from stageline.workload.recording import RecordingHeader, cancel_line, end_line, header_line, request_line

log = logging.getLogger(__name__)


class Recorder:
    """One file per session: FILE, FILE.1, FILE.2, ..., the first name that is free.

    A router that comes back after a crash keeps what was recorded. A session without requests leaves no file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = 0
        self._file: TextIO | None = None
        self._header: RecordingHeader | None = None
        if not path.parent.is_dir():
            raise UsageError(f"--record {path}: there is no directory {path.parent}")
        if path.is_dir():
            raise UsageError(f"--record {path}: is a directory; give a file in it")

    def begin(self, header: RecordingHeader) -> None:
        """A session has opened."""
        self._header = header

    def request(self, request: Request) -> None:
        """A request has arrived."""
        self._line(request_line(request))

    def cancel(self, index: int, at_ns: int) -> None:
        """A client has left."""
        self._line(cancel_line(index, at_ns))

    def end(self, digest: str | None) -> Path | None:
        """The session is over; its file, if there is one. No digest: it broke off."""
        file, self._file, self._header = self._file, None, None
        if file is None:
            return None
        with file:
            if digest:
                file.write(end_line(digest))
        return Path(file.name)

    def _line(self, line: str) -> None:
        if self._file is None:
            assert self._header is not None
            try:
                self._file = self._open()
            except OSError as error:
                raise RunFailed(f"--record {self._path}: can't be written: {error.strerror}") from None
            self._file.write(header_line(self._header))
        self._file.write(line)

    def _open(self) -> TextIO:
        """The next file, flushed line by line. Raises OSError."""
        while True:
            path = Path(f"{self._path}.{self._files}") if self._files else self._path
            self._files += 1
            with contextlib.suppress(FileExistsError):
                file = path.open("x", encoding="utf-8", buffering=1)
                if path != self._path:
                    log.warning("earlier recordings are kept", extra={"recording": path})
                return file
