"""Results go to stdout, diagnostics to stderr."""

import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from stageline.errors import UsageError


class _Stdout(Console):
    """Rich ends the process with 1 when the reader has gone; here that is `main`'s to say, as for everything else."""

    def on_broken_pipe(self) -> None:
        """See Console."""
        raise BrokenPipeError


def console() -> Console:
    """Stdout; 120 columns in a pipe, so that tables are the same everywhere."""
    return _Stdout(width=None if sys.stdout.isatty() else 120, soft_wrap=False, highlight=False)


def print_json(value: object) -> None:
    """Indented JSON on stdout."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(title: str, columns: list[tuple[str, bool]], rows: list[list[str]]) -> None:
    """A table; the flag of a column says whether it holds numbers (right-aligned)."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for name, number in columns:
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_lines(lines: list[str]) -> None:
    """Plain lines on stdout, wrapped."""
    out = console()
    for line in lines:
        out.print(line, markup=False)


def write_file(path: Path, data: bytes) -> None:
    """Write a result. Raises UsageError where that can't be done."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None


def read_file(path: Path) -> bytes:
    """Read an input. Raises UsageError where that can't be done."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
