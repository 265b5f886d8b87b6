"""One run to carry out, and how far it is."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from stageline.api.execution import Cluster, WorkloadText
from stageline.engine.fleet import Fleet
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.report.measure import ARRIVALS, MeasureWindow
from stageline.report.run_writer import RunWriter
from stageline.report.slo import Slo
from stageline.workload import DescribedWorkload, open_workload


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run: everything that decides its result, and what carries it out. A workload can be run once."""

    plan: Plan | Fleet
    workload: DescribedWorkload
    scheduling: Scheduling = Scheduling()  # of a plan; the pools of a fleet have their own
    seed: int = 0
    slo: Slo | None = None
    window: MeasureWindow = ARRIVALS  # in which rates are measured
    price: float | None = None  # of a device's hour
    paranoid: bool = False  # check the laws after every round of events
    cluster: Cluster | None = None  # None: in this process
    text: WorkloadText | None = None  # how the workload was asked for; None: it was open already
    command: str = ""  # for summary.json
    inputs: tuple[Path, ...] = ()  # files that the run is made of, which it must not overwrite
    serving_engine: str | None = None  # that replaces the plan's


class RunStatus:
    """How far a run is; read it from another thread while the run is under way."""

    def __init__(self, workload: DescribedWorkload, writer: RunWriter, *, times: int = 1) -> None:
        """`times`: how often the workload is run."""
        self._workloads, self._times, self._writer = [workload], times, writer

    def again(self, workload: DescribedWorkload) -> DescribedWorkload:
        """It is run once more; the same workload."""
        self._workloads.append(workload)
        return workload

    @property
    def fraction(self) -> float:
        """How much of the workload has arrived, 0 to 1."""
        return sum(workload.fraction() for workload in self._workloads) / self._times

    @property
    def requests(self) -> int:
        """Requests that have left the system."""
        return self._writer.statistics.requests


WatchRun = Callable[[RunStatus], None]


def opened(text: WorkloadText) -> DescribedWorkload:
    """The workload that was asked for, from its beginning. Raises BadInput."""
    return open_workload(
        text.text,
        seed=text.seed,
        rate_scale=text.rate_scale,
        requests=text.requests or None,
        skip_bad_rows=text.skip_bad_rows,
        sort=text.sort,
    )
