"""`stageline calibrate`: kernel timings, or timings of requests, become a profile that plans name."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from stageline.api.files import read_file, write_file
from stageline.api.fitting import MeasuredRun, Serving, fit_attention, fit_efficiencies
from stageline.api.least_error import MAX_RUNS
from stageline.api.lookup import MAX_SCALE, find_model
from stageline.catalog.loader import Catalog
from stageline.cli import output
from stageline.cli.numbers import DECIMAL, WHOLE
from stageline.cli.progress import counting_bar
from stageline.cost.efficiencies import Efficiencies
from stageline.cost.kernel_timings import make_profile
from stageline.cost.profile import Profile, Residual
from stageline.errors import BadInput, UsageError
from stageline.hardware.device import Device
from stageline.load.observation import OBSERVATION_FILE
from stageline.load.observed import observed_timings
from stageline.model.spec import ModelSpec
from stageline.workload.timings import read_timings

FILES = ("dense.csv", "attention.csv", "per_sequence.csv")
MAX_SETTING = 1 << 20


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFlags:
    """The server that was measured."""

    max_num_seqs: Annotated[
        int, WHOLE, Parameter(name=["--max-num-seqs", "--max-running"], help="Requests that the server ran at once.")
    ] = 256
    batched_tokens: Annotated[
        int,
        WHOLE,
        Parameter(
            name=["--batched-tokens", "--max-num-batched-tokens"], help="Maximum number of new tokens in a step."
        ),
    ] = 2048
    tensor_parallel: Annotated[
        int,
        WHOLE,
        Parameter(name=["--tensor-parallel-size", "--tp"], help="Tensor-parallel size of the server."),
    ] = 1

    def settings(self) -> Serving:
        """Raises BadInput."""
        return Serving(
            _count(self.max_num_seqs, "--max-num-seqs"),
            _count(self.batched_tokens, "--batched-tokens"),
            _count(self.tensor_parallel, "--tp"),
        )


def calibrate_command(
    timings: Annotated[
        Path,
        Parameter(
            help="What stageline observe wrote (directory), kernel timings (directory), or measured requests "
            "(JSONL or CSV file)."
        ),
    ],
    model: Annotated[str, Parameter(help="Model that was measured: catalogue name, or path of a config.json.")],
    device: Annotated[str, Parameter(help="Catalogue name of the device that was measured.")],
    /,
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
    serving: ServingFlags = ServingFlags(),
    catalog: Annotated[
        tuple[Path, ...],
        Parameter(negative="", show_default=False, help="Directories with your own models/ and devices/."),
    ] = (),
    json: Annotated[bool, Parameter(negative="", help="Print the residuals as JSON.")] = False,
) -> int:
    """Make a cost profile from an observed server, kernel timings or measured requests; see docs/twin.md."""
    lookup = Catalog(catalog)
    spec, found = find_model(model, lookup), lookup.device(device).device
    profile: Profile | Efficiencies
    if timings.is_dir() and not (timings / OBSERVATION_FILE).is_file():
        profile = _from_kernels(timings, name or out.stem, spec, found, attention_scale)
        if requests is not None:
            if attention_scale is not None:
                raise UsageError("--requests fits the scale that --attention-scale sets: give one of them")
            profile = fit_attention(_measured(requests, spec, found, serving.settings()), profile)
    else:
        if requests is not None or attention_scale is not None:
            raise UsageError(
                f"{timings} is not a folder of kernel timings, which --requests and --attention-scale need"
            )
        profile = _from_requests(_measured(timings, spec, found, serving.settings()), name or out.stem, timings.name)
    write_file(out, msgspec.json.encode(profile) + b"\n")
    _show(profile, as_json=json)
    return 0


def _count(value: int, flag: str) -> int:
    if not 1 <= value <= MAX_SETTING:
        raise BadInput(flag, value, f"not between 1 and {MAX_SETTING:,}", "give what the measured engine was run with")
    return value


def _from_kernels(folder: Path, name: str, spec: ModelSpec, device: Device, scale: float | None) -> Profile:
    if scale is not None and not 0 < scale <= MAX_SCALE:
        raise UsageError(f"--attention-scale {scale}: must lie between 0 and {MAX_SCALE:g}")
    dense, attention, per_sequence = (read_file(folder / file).decode(errors="replace") for file in FILES)
    profile = make_profile(
        dense, attention, per_sequence, name=name, model=spec.name, device=device.name, source=folder.name
    )
    return msgspec.structs.replace(profile, attention_scale=1.0 if scale is None else scale)


def _measured(path: Path, spec: ModelSpec, device: Device, serving: Serving) -> MeasuredRun:
    if path.is_dir():
        return MeasuredRun(spec, device, observed_timings(path, serving.max_num_seqs), serving)
    text = read_file(path).decode("utf-8-sig", errors="replace")
    return MeasuredRun(spec, device, read_timings(text, str(path)), serving)


def _from_requests(measured: MeasuredRun, name: str, source: str) -> Efficiencies:
    runs = itertools.count(1)
    with counting_bar("runs") as watch:
        return fit_efficiencies(measured, name, source, lambda: watch(next(runs), MAX_RUNS))


def _show(profile: Profile | Efficiencies, *, as_json: bool) -> None:
    if as_json:
        if isinstance(profile, Efficiencies):
            output.print_json({"fitted": profile.residuals, "backtest": profile.backtest})
        else:
            output.print_json(profile.residuals)
        return
    name = f"{profile.name}: {profile.model} on {profile.device}"
    fitted = isinstance(profile, Efficiencies)
    _table(name, "the half that was fitted" if fitted else "residuals", profile.residuals)
    if isinstance(profile, Efficiencies):
        _table("", "backtest: the half that was not", profile.backtest)
        _constants(profile)
    else:
        output.print_lines([f"attention x {profile.attention_scale:g}"])


def _table(title: str, what: str, found: Sequence[Residual]) -> None:
    rows = [
        [r.of, f"{r.points:,}", "" if r.mean is None else f"{r.mean:+.2%}", f"{r.median:+.2%}", f"{r.p90_absolute:.2%}"]
        for r in found
    ]
    columns = [(f"{what}, profile / measured - 1", False), ("points", True), ("of the mean", True)]
    columns += [("median", True), ("90 % within", True)]
    output.print_table(title, columns, rows)


def _constants(fit: Efficiencies) -> None:
    """The constants, and between which bounds they fit almost as well."""
    rows = [
        [what, text.format(getattr(fit, name) * factor), _bounds(fit, name, text, factor)]
        for what, name, text, factor in (
            ("share of peak FLOP/s", "flops_share", "{:.1%}", 1),
            ("share of bandwidth", "bandwidth_share", "{:.1%}", 1),
            ("host per step", "step_ns", "{:,.0f} us", 1e-3),
            ("host per step and sequence", "sequence_ns", "{:,.1f} us", 1e-3),
            ("front end per request", "front_end_ns", "{:,.0f} us", 1e-3),
        )
    ]
    output.print_table("", [("constant", False), ("fitted", True), ("almost as good", False)], rows)


def _bounds(fit: Efficiencies, name: str, text: str, factor: float) -> str:
    if fit.least is None or fit.most is None or not hasattr(fit.least, name):
        return ""
    low, high = (text.format(getattr(end, name) * factor) for end in (fit.least, fit.most))
    return low if low == high else f"{low} to {high}"
