"""What a run shows of the inside of its stages: events.jsonl, microbatches.jsonl and the spans of its requests."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from stageline.engine.types import MemberObserver, RequestRecord, StageObserver
from stageline.report.events import StageEventWriter
from stageline.report.groups import MicrobatchWriter
from stageline.report.rundir import EVENTS_FILE, MICROBATCHES_FILE
from stageline.report.spans.recorder import TraceRecorder
from stageline.report.tee import TeeStageObserver


class InsideWriter:
    """Holds the observers that an engine needs, each None if nobody watches. A context manager."""

    def __init__(self, directory: Path | None, trace: TraceRecorder | None) -> None:
        """Writes the files into `directory`, unless it is None. Raises OSError."""
        self._trace = trace
        self._microbatches: MicrobatchWriter | None = None
        self.stage_observer: StageObserver | None = trace
        self.members: MemberObserver | None = trace  # who is told the members of microbatches
        with ExitStack() as files:
            if directory is not None:
                events = files.enter_context(StageEventWriter(directory / EVENTS_FILE))
                self._microbatches = files.enter_context(MicrobatchWriter(directory / MICROBATCHES_FILE, trace))
                self.stage_observer = events if trace is None else TeeStageObserver(events, trace)
                self.members = self._microbatches
            self._files = files.pop_all()

    def arrived(self, index: int, arrival_ns: int) -> None:
        """A request has arrived."""
        if self._trace is not None:
            self._trace.arrived(index, arrival_ns)

    def request(self, record: RequestRecord) -> None:
        """A request has left the system."""
        if self._microbatches is not None:
            self._microbatches.ended(record.replica, record.index)
            if record.hand_over is not None:
                self._microbatches.ended(record.hand_over.decode_replica, record.index)
        if self._trace is not None:
            self._trace.request(record)

    def __enter__(self) -> "InsideWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._files.close()
