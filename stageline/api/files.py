"""Reads and writes the files that a user names; errors name the path."""

from pathlib import Path

from stageline.errors import UsageError


def write_file(path: Path, data: bytes) -> None:
    """Write a result. Raises UsageError where that can't be done."""
    try:
        path.write_bytes(data)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise UsageError(f"{path}: can't be written: {getattr(error, 'strerror', None) or error}") from None


def read_file(path: Path) -> bytes:
    """Read an input. Raises UsageError where that can't be done."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise UsageError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from None
