"""A progress bar on stderr, on a terminal only; and the tap that feeds it."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from stageline.engine.types import Cancellation, Request
from stageline.report.writer import RunWriter
from stageline.workload import DescribedWorkload

_EVERY = 64  # requests between two updates


class Watched:
    """A workload that tells the writer who arrived, and the bar how far the workload is."""

    def __init__(self, workload: DescribedWorkload, writer: RunWriter, bar: "Bar") -> None:
        self._workload, self._writer, self._bar = workload, writer, bar
        self._taken = 0
        self.reactive = workload.reactive
        self.next_arrival_ns = workload.next_arrival_ns
        self.finished = workload.finished
        self.horizon_ns = workload.horizon_ns

    def take(self) -> Request | Cancellation:
        """See Workload."""
        request = self._workload.take()
        if isinstance(request, Request):
            self._writer.arrived(request.index, request.arrival_ns)
        self._taken += 1
        if self._taken % _EVERY == 0:
            self._bar.show(self._workload.fraction())
        return request


class Bar:
    """Nothing is drawn unless stderr is a terminal."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task = progress.add_task("arrivals", total=1.0) if progress else None

    def show(self, fraction: float) -> None:
        """How much of the workload has arrived."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=fraction)


class _Left(ProgressColumn):
    def __init__(self, writer: RunWriter) -> None:
        super().__init__()
        self._writer = writer

    def render(self, task: Task) -> Text:
        """Read at each refresh, so that it moves on while the last requests drain."""
        return Text(f"{self._writer.statistics.requests:,} requests done")


@contextmanager
def progress_of(writer: RunWriter) -> Iterator[Bar]:
    """A bar for the time of a run."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Bar(None)
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), _Left(writer)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield Bar(progress)
