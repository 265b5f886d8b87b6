"""Records finished calls: totals, the timeline, and requests.csv, written as calls end."""

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import TextIO

import msgspec

from stageline.errors import UsageError
from stageline.load.reply import CallReply
from stageline.load.sample import Sample
from stageline.load.schedule import Due
from stageline.load.tally import Tally
from stageline.load.timeline import LoadTimeline
from stageline.report.distributions import Histogram
from stageline.report.slo import Slo

REQUESTS_FILE = "requests.csv"
SUMMARY_FILE = "summary.json"
REPORT_FILE = "report.html"


class CallGroup(msgspec.Struct):
    """The calls of one rate step, or of the whole run. `emulated_gaps`: those that the server states."""

    tally: Tally
    gaps: Histogram
    emulated_gaps: Histogram


class LoadRecorder:
    """A CallRecorder and context manager. Memory: at most 144 bytes per call, none per chunk."""

    def __init__(
        self,
        steps: int,
        *,
        slo: Slo | None,
        dilation: Fraction | None,
        slo_on_wall: bool,
        directory: Path | None,
    ) -> None:
        def group() -> CallGroup:
            return CallGroup(Tally(slo, dilation, slo_on_wall=slo_on_wall), Histogram(), Histogram())

        self.total, self.steps = group(), [group() for _ in range(steps)]
        self.timeline = LoadTimeline()
        self.warmup_calls = 0
        self.dilations = set[str]()
        self.details: dict[str, str] = {}  # the first detail of every reason
        self._warmup_gaps = Histogram()
        self._files = ExitStack()
        self._csv = None if directory is None else self._open(directory)

    def __enter__(self) -> "LoadRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def gaps(self, due: Due) -> Histogram:
        """See CallRecorder."""
        return self._warmup_gaps if due.warmup else self.steps[due.step].gaps

    def credit(self, time_ns: int, tokens: int) -> None:
        """See CallRecorder."""
        self.timeline.credit(time_ns, tokens)

    def record(self, sample: Sample, reply: CallReply) -> None:
        """See CallRecorder."""
        self.timeline.add(sample)
        if reply.dilation is not None:
            self.dilations.add(reply.dilation)
        if sample.reason:
            self.details.setdefault(sample.reason, reply.detail)
        if self._csv is not None:
            self._csv.write(csv_line(sample))
        if sample.warmup:
            self.warmup_calls += 1
            return
        self.total.tally.add(sample)
        step = self.steps[sample.step]
        step.tally.add(sample)
        if reply.emulated is not None:
            for gap_ns in reply.emulated.gaps_ns or ():
                step.emulated_gaps.add(gap_ns)

    def finish(self) -> None:
        """Adds up the steps; call once, at the end."""
        for step in self.steps:
            self.total.gaps.merge(step.gaps)
            self.total.emulated_gaps.merge(step.emulated_gaps)

    def _open(self, directory: Path) -> TextIO:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for name in (SUMMARY_FILE, REPORT_FILE):
                (directory / name).unlink(missing_ok=True)
            file = self._files.enter_context((directory / REQUESTS_FILE).open("w", encoding="ascii"))
            file.write(",".join(Sample.__struct_fields__) + "\n")
        except OSError as error:
            raise UsageError(f"-o {directory}: can't be written: {error.strerror}; give another directory") from None
        return file


def csv_line(sample: Sample) -> str:
    """All members in order; None is an empty cell, a flag 0 or 1. No member contains a comma."""
    values = (getattr(sample, name) for name in Sample.__struct_fields__)
    return ",".join("" if v is None else str(int(v)) if isinstance(v, bool) else str(v) for v in values) + "\n"
