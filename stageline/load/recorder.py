"""Keeps what came back: tallies, the course of the run, and requests.csv while it goes."""

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import TextIO

import msgspec

from stageline.errors import UsageError
from stageline.load.reply import Reply
from stageline.load.sample import Sample
from stageline.load.schedule import Due
from stageline.load.tally import Tally
from stageline.load.timeline import Timeline
from stageline.report.series import Histogram
from stageline.report.slo import Slo

REQUESTS = "requests.csv"
SUMMARY = "summary.json"
REPORT = "report.html"


class Part(msgspec.Struct):
    """One rate step, or all of them."""

    tally: Tally
    gaps: Histogram


class LoadRecorder:
    """A Recorder. Memory: 144 bytes per call at most, none per chunk. Use as a context manager."""

    def __init__(
        self,
        steps: int,
        *,
        slo: Slo | None,
        dilation: Fraction | None,
        slo_on_wall: bool,
        directory: Path | None,
    ) -> None:
        def part() -> Part:
            return Part(Tally(slo, dilation, slo_on_wall=slo_on_wall), Histogram())

        self.total, self.steps = part(), [part() for _ in range(steps)]
        self.timeline = Timeline()
        self.warmup_calls = 0
        self.dilations = set[str]()
        self.details: dict[str, str] = {}  # the first sentence of every reason
        self._warmup_gaps = Histogram()
        self._files = ExitStack()
        self._csv = None if directory is None else self._open(directory)

    def __enter__(self) -> "LoadRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def gaps(self, due: Due) -> Histogram:
        """See Recorder."""
        return self._warmup_gaps if due.warmup else self.steps[due.step].gaps

    def record(self, sample: Sample, reply: Reply) -> None:
        """See Recorder."""
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
        self.steps[sample.step].tally.add(sample)

    def finish(self) -> None:
        """Adds up what was kept by step."""
        for step in self.steps:
            self.total.gaps.merge(step.gaps)

    def _open(self, directory: Path) -> TextIO:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for name in (SUMMARY, REPORT):
                (directory / name).unlink(missing_ok=True)
            file = self._files.enter_context((directory / REQUESTS).open("w", encoding="ascii"))
            file.write(",".join(Sample.__struct_fields__) + "\n")
        except OSError as error:
            raise UsageError(f"-o {directory}: can't be written: {error.strerror}; give another directory") from None
        return file


def csv_line(sample: Sample) -> str:
    """All members in order; None is an empty cell, a flag 0 or 1. No member holds a comma."""
    values = (getattr(sample, name) for name in Sample.__struct_fields__)
    return ",".join("" if v is None else str(int(v)) if isinstance(v, bool) else str(v) for v in values) + "\n"
