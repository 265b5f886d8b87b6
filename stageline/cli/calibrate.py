"""`stageline calibrate`: kernel timings, or timings of requests, become a profile that plans name."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from stageline.catalog.loader import Catalog
from stageline.cli import output
from stageline.cli.fitting import MAX_RUNS, Measured, Serving, fit_attention, fit_efficiencies
from stageline.cli.lookup import MAX_SCALE, find_model
from stageline.cost.efficiencies import Efficiencies
from stageline.cost.kernel_timings import make_profile
from stageline.cost.profile import Profile
from stageline.errors import BadInput, UsageError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.workload.timings import read_timings

FILES = ("dense.csv", "attention.csv", "per_sequence.csv")
LARGEST = 1 << 20


def calibrate(
    timings: Annotated[Path, Parameter(help="folder of kernel timings, or a JSONL or CSV file of measured requests")],
    model: Annotated[str, Parameter(help="that they were taken with: catalogue name, or path of a config.json")],
    device: Annotated[str, Parameter(help="catalogue name of the device that they were taken on")],
    /,
    *,
    out: Annotated[Path, Parameter(name=["--output", "-o"], help="profile to write, for plan --profile")],
    name: Annotated[str | None, Parameter(help="what to call it (default: the file's stem)")] = None,
    requests: Annotated[
        Path | None, Parameter(help="with kernels: measured requests, to which attention's scale is fitted")
    ] = None,
    attention_scale: Annotated[
        float | None, Parameter(help="with kernels: factor on attention, given instead of fitted (default: 1)")
    ] = None,
    max_num_seqs: Annotated[
        int, Parameter(name=["--max-num-seqs", "--max-running"], help="requests that the measured engine ran at once")
    ] = 256,
    batched_tokens: Annotated[
        int, Parameter(name=["--batched-tokens", "--max-num-batched-tokens"], help="new tokens of its steps at most")
    ] = 2048,
    tensor_parallel: Annotated[
        int, Parameter(name=["--tensor-parallel-size", "--tp"], help="devices that it split the model over")
    ] = 1,
    catalog: Annotated[tuple[Path, ...], Parameter(help="directories with your own models/ and devices/")] = (),
    json: Annotated[bool, Parameter(negative="", help="print the residuals as JSON")] = False,
) -> int:
    """Make a profile of measured costs from kernel timings or from timings of requests; docs/planning.md has both."""
    serving = Serving(
        _count(max_num_seqs, "--max-num-seqs"),
        _count(batched_tokens, "--batched-tokens"),
        _count(tensor_parallel, "--tp"),
    )
    shelf = Catalog(catalog)
    spec, found = find_model(model, shelf), shelf.device(device).device
    profile: Profile | Efficiencies
    if timings.is_dir():
        profile = _from_kernels(timings, name or out.stem, spec, found, attention_scale)
        if requests is not None:
            if attention_scale is not None:
                raise UsageError("--requests fits what --attention-scale gives: leave one of them out")
            profile = fit_attention(_measured(requests, spec, found, serving), profile)
    else:
        if requests is not None or attention_scale is not None:
            raise UsageError(f"{timings} is no folder of kernel timings: --requests and --attention-scale need one")
        profile = _from_requests(_measured(timings, spec, found, serving), name or out.stem, timings.name)
    output.write_file(out, msgspec.json.encode(profile) + b"\n")
    _show(profile, as_json=json)
    return 0


def _count(value: int, flag: str) -> int:
    if not 1 <= value <= LARGEST:
        raise BadInput(flag, value, f"not between 1 and {LARGEST:,}", "give what the measured engine was run with")
    return value


def _from_kernels(folder: Path, name: str, spec: ModelSpec, device: Device, scale: float | None) -> Profile:
    if scale is not None and not 0 < scale <= MAX_SCALE:
        raise UsageError(f"--attention-scale {scale}: must lie between 0 and {MAX_SCALE:g}")
    dense, attention, per_sequence = (output.read_file(folder / file).decode(errors="replace") for file in FILES)
    profile = make_profile(
        dense, attention, per_sequence, name=name, model=spec.name, device=device.name, source=folder.name
    )
    return msgspec.structs.replace(profile, attention_scale=1.0 if scale is None else scale)


def _measured(path: Path, spec: ModelSpec, device: Device, serving: Serving) -> Measured:
    text = output.read_file(path).decode("utf-8-sig", errors="replace")
    return Measured(spec, device, read_timings(text, str(path)), serving)


def _from_requests(measured: Measured, name: str, source: str) -> Efficiencies:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("runs", total=MAX_RUNS)
        return fit_efficiencies(measured, name, source, lambda: progress.advance(task))


def _show(profile: Profile | Efficiencies, *, as_json: bool) -> None:
    if as_json:
        output.print_json(profile.residuals)
        return
    rows = [
        [r.of, f"{r.points:,}", "" if r.mean is None else f"{r.mean:+.2%}", f"{r.median:+.2%}", f"{r.p90_absolute:.2%}"]
        for r in profile.residuals
    ]
    columns = [("residuals, profile / measured - 1", False), ("points", True), ("of the mean", True)]
    columns += [("median", True), ("90 % within", True)]
    output.print_table(f"{profile.name}: {profile.model} on {profile.device}", columns, rows)
    output.print_lines([_fitted(profile)])


def _fitted(profile: Profile | Efficiencies) -> str:
    if isinstance(profile, Profile):
        return f"attention x {profile.attention_scale:g}"
    return (
        f"{profile.flops_share:.1%} of peak FLOP/s, {profile.bandwidth_share:.1%} of bandwidth, "
        f"{profile.step_ns / 1e3:,.0f} us of host per step"
    )
