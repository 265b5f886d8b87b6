"""`RunWriter` observes a run and writes its run directory; without one, it only makes the digest and the summary."""

import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from stageline.engine.fleet import Fleet
from stageline.engine.types import MemberObserver, RequestRecord, RunTotals, StageObserver, StageRecord
from stageline.errors import RunFailed, UsageError
from stageline.plan.schema import Plan
from stageline.report.advice import advise
from stageline.report.canonical import canonical_line
from stageline.report.claim import claim
from stageline.report.digest import Digest
from stageline.report.inside import InsideWriter
from stageline.report.measure import ARRIVALS, MeasureWindow
from stageline.report.pool_summary import PoolTallies
from stageline.report.pools import RunPools
from stageline.report.reorder import ReorderBuffer
from stageline.report.rundir import (
    EVENTS_FILE,
    FLEET_FILE,
    MICROBATCHES_FILE,
    PLAN_FILE,
    REQUESTS_FILE,
    RUN_FILES,
    STAGES_FILE,
    SUMMARY_FILE,
)
from stageline.report.slo import Slo
from stageline.report.spans.recorder import TraceRecorder
from stageline.report.statistics import Statistics
from stageline.report.summary import RunFacts, Summary, run_summary


class RunWriter:
    """An Observer. It keeps 65 bytes per request, and the lines of requests that left before an earlier one.

    Use as a context manager around the run, then call `finish`. If the run breaks off, its requests so far stay in
    requests.jsonl; call `abort` for a summary that says so.
    """

    def __init__(
        self,
        source: Plan | Fleet,
        directory: Path | None = None,
        *,
        slo: Slo | None = None,
        window: MeasureWindow = ARRIVALS,
        events: bool = False,
        trace: TraceRecorder | None = None,
        inputs: Iterable[Path] = (),
        second: bool = False,
    ) -> None:
        """`second`: what is inside the stages is shown by a second run, for which `look_inside` is called."""
        self.statistics = Statistics(slo, window)
        self._trace, self._events = trace, events
        self._inside = InsideWriter(None, None)
        self._pools = RunPools(source)
        self._tallies = PoolTallies(self._pools) if self._pools.named else None
        self._directory = directory
        self._digest = Digest()
        self._files = ExitStack()
        self._claim, self._claimed = ExitStack(), False  # until the last file is written
        self._lines: ReorderBuffer | None = None
        try:
            if directory is not None:
                self._open(directory, inputs)
            if not second:
                self._inside = self.look_inside()
        except OSError as error:
            self._discard()
            raise UsageError(f"-o {directory}: can't be written: {error.strerror}; give another directory") from None

    def _open(self, directory: Path, inputs: Iterable[Path]) -> None:
        """Removes the files of an earlier run, so that a run that breaks off can't be taken for it."""
        self._claim.callback(os.close, claim(directory, inputs))
        self._claimed = True
        for name in RUN_FILES:
            (directory / name).unlink(missing_ok=True)
        name = FLEET_FILE if self._pools.named else PLAN_FILE
        (directory / name).write_bytes(self._pools.source.canonical() + b"\n")
        requests = self._files.enter_context((directory / REQUESTS_FILE).open("wb"))
        self._lines = ReorderBuffer(requests.write)

    def look_inside(self) -> InsideWriter:
        """Begins the events and spans, which are closed with the other files. Raises OSError."""
        return self._files.enter_context(InsideWriter(self._directory if self._events else None, self._trace))

    def forget_inside(self) -> None:
        """Removes the events: they are not those of this run."""
        self._remove(EVENTS_FILE, MICROBATCHES_FILE)

    @property
    def stage_observer(self) -> StageObserver | None:
        """The observer that the stages need; None if nobody watches them."""
        return self._inside.stage_observer

    @property
    def members(self) -> MemberObserver | None:
        """Who is told the members of microbatches; None if nobody is."""
        return self._inside.members

    def arrived(self, index: int, arrival_ns: int) -> None:
        """A request has arrived: its line comes after those that arrived before it."""
        if self._lines is not None:
            self._lines.expect(index)
        self._inside.arrived(index, arrival_ns)

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        if since_ns is not None:
            self.statistics.token_gap(now_ns - since_ns)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        line = canonical_line(record)
        self._digest.request(record.index, line)
        if self._lines is not None:
            self._lines.put(record.index, line)
        self.statistics.request(record)
        if self._tallies is not None:
            self._tallies.request(record)
        self._inside.request(record)

    def begin(self, facts: RunFacts) -> None:
        """Writes a summary of nothing yet: a run that is killed leaves it, and nobody takes it for a complete one."""
        if self._directory is None:
            return
        try:
            self._write_summary(self._summary(None, facts, None))
        except OSError as error:
            self._discard()
            raise self.broken(error) from error

    def finish(self, totals: RunTotals, facts: RunFacts) -> Summary:
        """Writes the figures of a complete run."""
        digest = self._digest.finish(totals.stages)
        summary = self._summary(totals, facts, digest)
        binds = tuple(advise(self._pools, summary, totals.stages))
        summary = msgspec.structs.replace(summary, binds=binds)
        try:
            self._close(summary, totals.stages)
        except OSError as error:
            self._remove(STAGES_FILE)
            raise self.broken(error) from error
        return summary

    def abort(self, facts: RunFacts) -> Summary:
        """Writes the figures of a run that broke off: no digest, `complete` is false.

        On a full disk the summary of the beginning stays, which says so too.
        """
        summary = self._summary(None, facts, None)
        with suppress(OSError):
            self._close(summary, None)
        return summary

    def _summary(self, totals: RunTotals | None, facts: RunFacts, digest: str | None) -> Summary:
        return run_summary(self._pools, totals, facts, self.statistics, digest, self._tallies)

    def _close(self, summary: Summary, stages: Iterable[StageRecord] | None) -> None:
        if self._lines is not None:
            self._lines.flush()
        self._files.close()
        if self._directory is not None:
            if stages is not None:
                _write(self._directory / STAGES_FILE, sorted(stages, key=lambda r: (r.replica, r.stage)))
            self._write_summary(summary)

    def _write_summary(self, summary: Summary) -> None:
        """In one step: no moment without a whole summary."""
        assert self._directory is not None
        path = self._directory / SUMMARY_FILE
        new = path.with_name(f".{SUMMARY_FILE}.new")
        try:
            _write(new, summary)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _discard(self) -> None:
        """Leaves no file of a run that could not begin: the next one would take them for the user's."""
        with self._claim, suppress(OSError):
            self._files.close()
        if self._claimed:
            self._remove(*RUN_FILES)

    def _remove(self, *names: str) -> None:
        for name in names:
            if self._directory is not None:
                (self._directory / name).unlink(missing_ok=True)

    def broken(self, error: OSError) -> RunFailed:
        """What to raise when the directory can't be written to its end: a full disk, for one."""
        return RunFailed(
            f"-o {self._directory}: can't be written: {error.strerror}; the run is incomplete: make room, or give "
            "another directory, and run it again"
        )

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, *_: object) -> None:
        with self._claim, suppress(OSError):  # what can't be written was told by `finish`, or is of a broken run
            self._files.close()


def _write(path: Path, value: object) -> None:
    text = msgspec.json.encode(value, order="sorted" if isinstance(value, list) else None)
    path.write_bytes(msgspec.json.format(text, indent=2) + b"\n")
