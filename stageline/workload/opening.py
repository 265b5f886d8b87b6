"""`open_workload`: from the text of --workload to a workload."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from stageline.engine.types import Request
from stageline.errors import BadInput
from stageline.units import parse_ratio
from stageline.workload.options import WorkloadOptions
from stageline.workload.order import Numbered, checked_ns, in_order, scaled_ns, sorted_fully
from stageline.workload.reading import accepted_rows
from stageline.workload.recording import is_recording, open_recording
from stageline.workload.registry import open_trace
from stageline.workload.rows import RowCounts
from stageline.workload.spec import KINDS, parse_spec
from stageline.workload.synthetic import synthetic
from stageline.workload.workloads import DescribedWorkload, IteratedWorkload


def open_workload(
    spec: str,
    *,
    seed: int = 0,
    rate_scale: str | Fraction = Fraction(1),
    requests: int | None = None,
    skip_bad_rows: bool = False,
    sort: bool = False,
) -> DescribedWorkload:
    """Opens a trace file or a synthetic spec. Raises BadInput for either.

    `requests` limits how many rows are accepted, in file order. Arrival times count from the earliest row of a trace;
    Stageline's own format keeps its times. All are divided by `rate_scale` and rounded half-even to ns.
    """
    if not spec.strip():
        kinds = ", ".join(f"{kind}:" for kind in KINDS)
        raise BadInput("--workload", spec, "it is empty", f"give a trace file, or a synthetic workload: {kinds}")
    if requests is not None and requests < 1:
        raise BadInput("--requests", requests, "not a positive number", "give 1 or more")
    scale = parse_ratio(rate_scale, "--rate-scale") if isinstance(rate_scale, str) else rate_scale
    options = WorkloadOptions(seed=seed, rate_scale=scale, requests=requests, skip_bad_rows=skip_bad_rows, sort=sort)
    parsed = None if _exists(spec) else parse_spec(spec)
    return _from_trace(spec, options) if parsed is None else synthetic(parsed, options)


def _from_trace(spec: str, options: WorkloadOptions) -> IteratedWorkload:
    if not _exists(spec):
        kinds = ", ".join(f"{kind}:" for kind in KINDS)
        raise BadInput(f"workload {spec}", None, "no such file", f"give a trace file, or a synthetic workload: {kinds}")
    if is_recording(Path(spec)):
        return open_recording(Path(spec), options)
    trace = open_trace(Path(spec))
    counts = RowCounts()
    rows = accepted_rows(trace, counts, skip_bad_rows=options.skip_bad_rows, limit=options.requests)
    place = f"workload {spec}"
    ordered = sorted_fully(rows, counts) if options.sort else in_order(rows, place, counts)
    workload = IteratedWorkload(
        _requests(ordered, options.rate_scale, place, trace.rebased),
        description=f"{trace.name}:{Path(spec).name}",
        counts=counts,
        fraction=lambda: max(trace.file.fraction(), counts.accepted / (options.requests or 1 << 60)),
        hash_block_tokens=trace.hash_block_tokens,
    )
    if workload.next_arrival_ns() is None:
        left = f"{counts.read} rows read, {counts.skipped_bad} skipped, {counts.left_out_failed} without output"
        raise BadInput(place, None, f"no usable row ({left})", "give a trace with at least one request")
    return workload


def _requests(ordered: Iterator[Numbered], rate_scale: Fraction, place: str, rebased: bool) -> Iterator[Request]:
    origin_ns: int | None = None if rebased else 0
    for time_ns, index, row in ordered:
        if origin_ns is None:
            origin_ns = time_ns
        yield row.request(index, checked_ns(scaled_ns(time_ns - origin_ns, rate_scale), place, index))


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a name that is too long for a path
        return False
