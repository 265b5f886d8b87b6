"""`stageline calibrate`: kernel tables, kernel timings, or timings of requests, become a profile that plans name."""

import itertools
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from cyclopts import Parameter

from stageline.api.files import read_file, write_file
from stageline.api.fitting import MeasuredRun, Serving, fit_attention, fit_efficiencies
from stageline.api.kernel_files import is_kernel_folder
from stageline.api.kernel_profiles import KernelRequest, kernel_profile
from stageline.api.keywords import PlanKeywords
from stageline.api.least_error import MAX_RUNS
from stageline.api.lookup import MAX_SCALE, AnyProfile, find_model
from stageline.api.plan_options import with_formats
from stageline.api.rank_timings import rank_timings
from stageline.catalog.loader import Catalog
from stageline.cli.calibrate_flags import ServingFlags
from stageline.cli.calibrate_output import show_profile
from stageline.cli.numbers import DECIMAL
from stageline.cli.progress import counting_bar
from stageline.cli.table_flags import TableFlags
from stageline.cost.efficiencies import Efficiencies
from stageline.cost.kernel_profile import KernelProfile
from stageline.cost.kernel_timings import make_profile
from stageline.cost.profile import Profile
from stageline.errors import UsageError
from stageline.hardware.device import Device
from stageline.load.observation import OBSERVATION_FILE
from stageline.load.observed import observed_timings
from stageline.model.spec import ModelSpec
from stageline.workload.timings import read_timings


def calibrate_command(
    timings: Annotated[
        Path,
        Parameter(
            name=["--kernels", "--timings"],
            help="What stageline observe wrote, kernel tables or kernel timings (directory), or measured requests "
            "(JSONL or CSV file).",
        ),
    ],
    model: Annotated[str, Parameter(help="Model that was measured: catalogue name, or path of a config.json.")],
    device: Annotated[str, Parameter(help="Catalogue name of the device that was measured.")],
    *,
    out: Annotated[Path, Parameter(name=["--output", "-o"], help="Profile to write, for plan --profile.")],
    name: Annotated[str | None, Parameter(help="Name of the profile; default: its file's name.")] = None,
    requests: Annotated[
        Path | None,
        Parameter(help="Measured requests to fit the attention scale to; with kernel timings."),
    ] = None,
    attention_scale: Annotated[
        float | None, DECIMAL, Parameter(help="Attention scale to use instead of a fitted one; with kernel timings.")
    ] = None,
    serving: ServingFlags = ServingFlags(),  # noqa: B008  (frozen)
    tables: TableFlags = TableFlags(),  # noqa: B008  (frozen)
    json: Annotated[bool, Parameter(negative="", help="Print the residuals as JSON.")] = False,
) -> int:
    """Make a cost profile from an observed server, kernel tables or timings, or measured requests; see docs/twin.md."""
    lookup = Catalog(tables.catalog)
    spec, found = find_model(model, lookup), lookup.device(device).device
    on, scale = MeasuredOn(spec, found, serving.settings()), Scale(requests, attention_scale)
    profile = _made(timings, name or out.stem, on, scale, tables)
    write_file(out, msgspec.json.encode(profile) + b"\n")
    show_profile(profile, as_json=json)
    return 0


class MeasuredOn(NamedTuple):
    """What was measured."""

    spec: ModelSpec
    device: Device
    serving: Serving


class Scale(NamedTuple):
    """How the attention of kernel timings is scaled: fitted to requests, or by a factor."""

    requests: Path | None
    factor: float | None

    def given(self) -> bool:
        """Whether it was asked for."""
        return self.requests is not None or self.factor is not None


def _made(timings: Path, name: str, on: MeasuredOn, scale: Scale, tables: TableFlags) -> AnyProfile:
    """The profile of whatever `timings` holds."""
    if timings.is_dir() and is_kernel_folder(timings):
        return _from_tables(timings, name, on, scale, tables)
    if given := tables.given():
        raise UsageError(f"{', '.join(given)}: only for a folder of kernel tables, and {timings} has no Parquet files")
    if timings.is_dir() and not (timings / OBSERVATION_FILE).is_file():
        return _from_timings(timings, name, on, scale)
    if scale.given():
        raise UsageError(f"{timings} is not a folder of kernel timings, which --requests and --attention-scale need")
    return _from_requests(_measured(timings, *on), name, timings.name)


def _from_timings(folder: Path, name: str, on: MeasuredOn, scale: Scale) -> Profile:
    if scale.factor is not None and not 0 < scale.factor <= MAX_SCALE:
        raise UsageError(f"--attention-scale {scale.factor}: must lie between 0 and {MAX_SCALE:g}")
    if scale.requests is not None and scale.factor is not None:
        raise UsageError("--requests fits the scale that --attention-scale sets: give one of them")
    files, shape = rank_timings(folder, on.spec, on.device, on.serving.tensor_parallel)
    profile = make_profile(
        *files, name=name, model=on.spec.name, device=on.device.name, source=folder.name, shape=shape
    )
    if scale.requests is not None:
        return fit_attention(_measured(scale.requests, *on), profile)
    return msgspec.structs.replace(profile, attention_scale=1.0 if scale.factor is None else scale.factor)


def _from_tables(folder: Path, name: str, on: MeasuredOn, scale: Scale, tables: TableFlags) -> KernelProfile:
    if scale.given():
        raise UsageError(f"{folder} holds kernel tables, which take neither --requests nor --attention-scale")
    request = KernelRequest(
        tensor_parallel=on.serving.tensor_parallel,
        expert_parallel=tables.expert_parallel,
        framework=tables.framework,
        distribution=tables.expert_load,
    )
    formats: PlanKeywords = {"weights": tables.weights, "kv_cache_dtype": tables.kv_cache_dtype}
    return kernel_profile(folder, name, with_formats(on.spec, formats), on.device, request)


def _measured(path: Path, spec: ModelSpec, device: Device, serving: Serving) -> MeasuredRun:
    if path.is_dir():
        return MeasuredRun(spec, device, observed_timings(path, serving.max_num_seqs), serving)
    text = read_file(path).decode("utf-8-sig", errors="replace")
    return MeasuredRun(spec, device, read_timings(text, str(path)), serving)


def _from_requests(measured: MeasuredRun, name: str, source: str) -> Efficiencies:
    runs = itertools.count(1)
    with counting_bar("runs") as watch:
        return fit_efficiencies(measured, name, source, lambda: watch(next(runs), MAX_RUNS))
