"""Results go to stdout, diagnostics to stderr."""

import shlex
import sys
from contextvars import ContextVar
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

AsJson = Annotated[bool, Parameter(negative="", help="Print JSON instead of a table.")]


class _Stdout(Console):
    """Rich ends the process with exit code 1 when the reader is gone; here `main` decides the exit code."""

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


def print_plain(lines: list[str]) -> None:
    """Lines on stdout as they are, to paste elsewhere: never wrapped."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


GIVEN: ContextVar[tuple[str, ...]] = ContextVar("GIVEN", default=())  # the words of the command under way
_ABOUT_OUTPUT = ("-o", "--output", "--json", "--explain", "--device-map")


def command_line() -> str:
    """The command as it was given, for the files that it writes."""
    return shlex.join(["stageline", *GIVEN.get()])


def plan_command_line() -> str:
    """The command without what it writes and prints: the same plan has the same text."""
    kept, words = ["stageline"], iter(GIVEN.get())
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in _ABOUT_OUTPUT:
            kept.append(word)
        elif name in ("-o", "--output") and not equals:
            next(words, None)
    return shlex.join(kept)
