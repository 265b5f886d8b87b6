"""What a run leaves, in memory or read back from its directory, and runs side by side."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from stageline.api.arguments import require_path
from stageline.engine.fleet import Fleet
from stageline.engine.types import HandOverRecord, RequestRecord, StageRecord
from stageline.errors import BadInput, UsageError
from stageline.plan.schema import Plan
from stageline.report import compare as comparing
from stageline.report import rundir
from stageline.report.compare import Comparison
from stageline.report.request_times import times_of
from stageline.report.summary import Summary
from stageline.units import NS_PER_S

ROW_FIELDS = (
    *(name for name in RequestRecord.__struct_fields__ if name != "hand_over"),
    *(f"hand_over_{name}" for name in HandOverRecord.__struct_fields__),
    "queue_s", "ttft_s", "tpot_s", "e2e_s",
)  # fmt: skip


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `summary` holds its figures (seconds of emulated time), `stages` where each stage's window went (ns)."""

    plan: Plan | Fleet
    summary: Summary
    stages: tuple[StageRecord, ...]  # by replica, stage; empty for a run that broke off
    requests: tuple[RequestRecord, ...]  # in the order of arrival, times in ns; empty when they were not kept
    directory: Path | None = None

    @property
    def name(self) -> str:
        """What a comparison calls it: its directory, else the start of its digest."""
        return str(self.directory) if self.directory is not None else (self.summary.digest or "")[:12]

    def rows(self) -> list[dict[str, Any]]:
        """One dict per request: its record, and `queue_s`, `ttft_s`, `tpot_s`, `e2e_s` (None unless it finished).

        Raises UsageError for a run that did not keep its requests.
        """
        if not self.requests and self.summary.complete and self.summary.requests["total"]:
            count = self.summary.requests["total"]
            raise UsageError(f"the run did not keep its {count:,} requests: run it without keep_requests=False")
        return [_row(record) for record in self.requests]

    def to_pandas(self) -> Any:
        """`rows()` as a pandas DataFrame, indexed by the request's number.

        Raises UsageError without pandas, and for a run that did not keep its requests.
        """
        try:
            import pandas as pd  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415  (optional)
        except ImportError:
            raise UsageError("to_pandas needs pandas: pip install pandas; rows() needs nothing") from None
        return pd.DataFrame(self.rows(), columns=list(ROW_FIELDS)).set_index("index")


def read_run(directory: str | os.PathLike[str]) -> RunResult:
    """The run in a directory that `stageline run -o` or `stageline.run(..., output=...)` wrote.

    A run that broke off has `summary.complete` false and no stages. Raises BadInput naming a file that is missing or
    damaged.

    >>> import stageline
    >>> run = stageline.read_run(DIRECTORY)
    >>> run.summary.complete, len(run.requests) == run.summary.requests["total"]
    (True, True)
    """
    path = require_path("read_run: directory", directory)
    summary = rundir.read_summary(path)
    requests = tuple(rundir.read_requests(path))
    if summary.complete and len(requests) != summary.requests["total"]:
        reason = f"summary.json says {summary.requests['total']} requests"
        raise BadInput(f"{path / rundir.REQUESTS_FILE}", len(requests), reason, rundir.RERUN)
    stages = tuple(rundir.read_stages(path)) if summary.complete else ()
    return RunResult(
        plan=rundir.read_run_pools(path).source, summary=summary, stages=stages, requests=requests, directory=path
    )


def compare(*runs: RunResult | str | os.PathLike[str]) -> Comparison:
    """What differs in how runs were made, and what that did to their figures: `stageline compare`.

    The first run is the baseline. `Comparison.rows` has one figure per row, with `values` and `text` for each run,
    `change(i)` relative to the first run and `verdict(i)`: "better", "worse" or "".

    Raises UsageError for fewer than two runs, BadInput for one that broke off.

    >>> import stageline
    >>> plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    >>> workload = "poisson:rate=20,requests=50,input=512,output=32"
    >>> both = stageline.compare(stageline.run(plan, workload), stageline.run(plan, workload, batched_tokens=256))
    >>> next(row.verdict(1) for row in both.rows if row.name == "TTFT p50")
    'worse'
    """
    if len(runs) < 2:
        raise UsageError("compare needs two run directories or more; stageline report shows one")
    return comparing.compare_runs(sides(runs))


def sides(runs: Sequence[RunResult | str | os.PathLike[str]]) -> list[comparing.ComparedRun]:
    """Runs as a comparison takes them. Raises BadInput for one that broke off."""
    found = []
    for run in runs:
        if not isinstance(run, RunResult):
            found += comparing.read_runs([require_path("compare: run", run)])
        elif not run.summary.complete:
            raise BadInput(run.name, None, "the run broke off and has no stages", rundir.RERUN)
        else:
            found.append(comparing.ComparedRun(run.name, run.summary, list(run.stages)))
    return found


def _row(record: RequestRecord) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(record)
    moved = row.pop("hand_over")
    row |= {f"hand_over_{name}": getattr(moved, name, None) for name in HandOverRecord.__struct_fields__}
    times = times_of(record)
    for name in ("queue", "ttft", "tpot", "e2e"):
        value = None if times is None else getattr(times, f"{name}_ns")
        row[f"{name}_s"] = None if value is None else value / NS_PER_S
    return row
