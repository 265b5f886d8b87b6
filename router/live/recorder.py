"""Writes a live session as a workload that replays it."""

from pathlib import Path
from typing import TextIO

from stageline.engine.types import Request
from stageline.errors import UsageError
from stageline.workload.recording import RecordingHeader, cancel_line, end_line, header_line, request_line


class Recorder:
    """One file per session: FILE, FILE.1, FILE.2, ...; a session without requests leaves none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = 0
        self._file: TextIO | None = None
        self._header: RecordingHeader | None = None
        if not path.parent.is_dir():
            raise UsageError(f"--record {path}: there is no directory {path.parent}")

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
            name = f"{self._path}.{self._files}" if self._files else str(self._path)
            try:
                self._file = Path(name).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until `end`
            except OSError as error:
                raise UsageError(f"--record {name}: can't be written: {error.strerror}") from None
            self._files += 1
            self._file.write(header_line(self._header))
        self._file.write(line)
