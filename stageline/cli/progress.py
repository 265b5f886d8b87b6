"""Progress bars on stderr, on a terminal only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text


class Measurable(Protocol):
    """Something under way."""

    @property
    def fraction(self) -> float:
        """How much of it is done, 0 to 1."""
        ...


Watched = TypeVar("Watched", bound=Measurable)


class _Live(ProgressColumn, Generic[Watched]):
    """Reads what is under way at each refresh, so that the bar moves while the last requests drain."""

    def __init__(self, text: Callable[[Watched], str]) -> None:
        super().__init__()
        self._text = text
        self.watched: Watched | None = None

    def render(self, task: Task) -> Text:
        """See ProgressColumn."""
        if self.watched is None:
            return Text("starting")
        task.completed = self.watched.fraction
        return Text(self._text(self.watched))


@contextmanager
def progress_bar(name: str, text: Callable[[Watched], str]) -> Iterator[Callable[[Watched], None]]:
    """A bar while the block runs; call what it yields with the thing to watch, which `text` puts into words."""
    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield lambda watched: None
        return
    live: _Live[Watched] = _Live(text)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), live
    with Progress(*columns, TimeElapsedColumn(), console=terminal, transient=True) as bars:
        bars.add_task(name, total=1.0)

        def watch(watched: Watched) -> None:
            live.watched = watched

        yield watch


@contextmanager
def counting_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over a number of steps; call what it yields with how many are done, and of how many."""
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
