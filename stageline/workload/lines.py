"""Reads a trace file line by line in constant memory; the file may hold any bytes."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stageline.errors import BadInput

MAX_LINE_BYTES = 16 * 1024 * 1024
HEAD_BYTES = 256 * 1024


class TraceFile:
    """An open trace that counts lines and bytes read. Undecodable bytes become U+FFFD, which later fails as a value."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.line = 0
        self.torn = False  # the latest line has no line break: the file ends within it, or after it
        self._consumed = 0
        if path.exists() and not (path.is_file() or path.is_dir()):  # opening a pipe may wait for ever
            reason = "a pipe or a device, and a workload is read from its beginning more than once"
            raise BadInput(f"workload {path}", None, reason, "write it to a file, and give that")
        try:
            self._file: BinaryIO = path.open("rb")
            self._size = path.stat().st_size
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadInput(f"workload {path}", None, f"can't be read: {reason}", "give an existing file") from None

    def head(self) -> str:
        """The first HEAD_BYTES, from which the format is recognised; the read position stays at the start."""
        head = self._file.read(HEAD_BYTES)
        self._file.seek(0)
        return head.decode("utf-8-sig", "replace")

    def lines(self) -> Iterator[str]:
        """Every line without its line break. `line` is the 1-based number of the latest one."""
        while raw := self._file.readline(MAX_LINE_BYTES + 1):
            self.line += 1
            self._consumed += len(raw)
            self.torn = not raw.endswith(b"\n")
            if len(raw) > MAX_LINE_BYTES:
                raise BadInput(self.where(), None, f"line longer than {MAX_LINE_BYTES} bytes", "give a trace file")
            yield raw.decode("utf-8-sig" if self.line == 1 else "utf-8", "replace").rstrip("\r\n")

    def chunks(self) -> Iterator[str]:
        """The text in chunks of about 64 KiB, for formats without lines; no character is split."""
        tail = b""
        if self._file.read(3) != b"\xef\xbb\xbf":
            self._file.seek(0)
        while raw := self._file.read(65536):
            self._consumed += len(raw)
            data = tail + raw
            keep = _incomplete(data)
            tail = data[len(data) - keep :] if keep else b""
            yield data[: len(data) - keep].decode("utf-8", "replace")
        if tail:
            yield tail.decode("utf-8", "replace")

    def where(self, line: int | None = None) -> str:
        """`file:line`, for error messages."""
        return f"{self.name}:{line or self.line}"

    def fraction(self) -> float:
        """Share of the file that has been read, 0 to 1, for progress bars."""
        return self._consumed / self._size if self._size else 1.0

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._file.close()


def _incomplete(data: bytes) -> int:
    """Length of an incomplete UTF-8 character at the end, in bytes (0 to 3)."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < need else 0
        if byte < 0x80:
            return 0
    return 0
