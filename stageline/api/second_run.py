"""The events, spans and laws of a cluster's run, whose servers show only results: it is made again in this process.

Both engines give the same records. The second run is compared with the first one request by request, and at its end
stage by stage, so that what it shows of the stages belongs to the run that the cluster made, or is not kept.
"""

import time
from array import array
from pathlib import Path

import msgspec

from stageline.api.execution import WorkloadText, execute
from stageline.api.job import Job
from stageline.engine.types import Cancellation, Observer, Request, RequestRecord, RunTotals
from stageline.errors import RunFailed, StagelineError, UsageError
from stageline.report.inside import InsideWriter
from stageline.report.run_writer import RunWriter
from stageline.workload import DescribedWorkload


class FirstRun:
    """An Observer that passes on what it sees. It keeps 8 bytes per request, which tell its record from others."""

    def __init__(self, observer: Observer) -> None:
        self.token = observer.token
        self._observer = observer
        self._records: array[int] = array("q")  # by index
        self.began_ns = time.time_ns()

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self._records.extend([0] * (record.index + 1 - len(self._records)))
        self._records[record.index] = _told(record)
        self._observer.request(record)

    def had(self, record: RequestRecord) -> bool:
        """Whether this record, and no other of its request, was seen."""
        return record.index < len(self._records) and self._records[record.index] == _told(record)


class SecondRun:
    """An Observer that compares every request with the first run, and hands on what is the same."""

    def __init__(self, job: Job, first: FirstRun, writer: RunWriter) -> None:
        self._job, self._first, self._writer = job, first, writer
        self._inside = writer.look_inside()

    def run(self, workload: DescribedWorkload, wanted: RunTotals) -> None:
        """Runs the job in this process. Raises RunFailed when it is not the first run again; its events are gone."""
        try:
            found = execute(
                self._job.plan,
                self._job.scheduling,
                Announced(workload, self._inside),
                seed=self._job.seed,
                observer=self,
                stage_observer=self._inside.stage_observer,
                members=self._inside.members,
                paranoid=self._job.paranoid,
            )
            if found != wanted:
                raise self._another("in what the stages did")
        except StagelineError:
            self._writer.forget_inside()
            raise

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer: a request's record tells enough."""

    def request(self, record: RequestRecord) -> None:
        """See Observer. Raises RunFailed for one that went another way in the first run."""
        if not self._first.had(record):
            raise self._another(f"at request {record.index}")
        self._inside.request(record)

    def _another(self, where: str) -> RunFailed:
        return RunFailed(
            f"made again in this process, the cluster's run went another way {where}: "
            f"{_suspect(self._job, self._first.began_ns)}; neither is kept as a result"
        )


class Announced:
    """A workload that tells of every arrival whoever must know its requests in that order."""

    def __init__(self, workload: DescribedWorkload, told: InsideWriter | RunWriter) -> None:
        self._workload, self._told = workload, told
        self.reactive = workload.reactive
        self.next_arrival_ns = workload.next_arrival_ns
        self.finished = workload.finished
        self.horizon_ns = workload.horizon_ns

    def take(self) -> Request | Cancellation:
        """See Workload."""
        request = self._workload.take()
        if isinstance(request, Request):
            self._told.arrived(request.index, request.arrival_ns)
        return request


def needed(job: Job, *, inside: bool) -> WorkloadText | None:
    """What a second run reads, if what is `inside` the stages, or their laws, need one.

    Raises UsageError if there can be none.
    """
    if job.cluster is None or not (inside or job.paranoid):
        return None
    if job.text is None:
        raise UsageError(
            "the events and laws of a cluster's run take a second run in this process, and a workload that is open can "
            "be run once: give its file or text instead"
        )
    return job.text


def _told(record: RequestRecord) -> int:
    return hash(msgspec.structs.astuple(record))


def _suspect(job: Job, began_ns: int) -> str:
    """What most likely made the difference, and what to do."""
    if own := job.scheduling.users_classes:
        return f"{own[0]} must decide by its arguments alone, and be the same class on the router"
    changed = [path for path in job.inputs if _changed(path, began_ns)]
    if changed:
        return f"{changed[0]} has changed since the run began: leave it alone, and run it again"
    return "which is a bug: report it with the plan and the command"


def _changed(path: Path, since_ns: int) -> bool:
    try:
        return path.is_file() and path.stat().st_mtime_ns > since_ns
    except OSError:
        return False
