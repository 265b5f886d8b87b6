"""`stageline calibrate`: kernel timings become a profile that plans name."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from stageline.catalog.loader import Catalog
from stageline.cli import output
from stageline.cli.sources import LARGEST_SCALE, find_model
from stageline.cost.kernels import make_profile
from stageline.cost.profile import Profile
from stageline.errors import UsageError

FILES = ("dense.csv", "attention.csv", "per_sequence.csv")


def calibrate(
    kernels: Path,
    model: str,
    device: str,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--output", "-o"])],
    name: str | None = None,
    attention_scale: float = 1.0,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Make a profile of measured costs from kernel timings.

    Parameters
    ----------
    kernels
        Folder with dense.csv, attention.csv and per_sequence.csv: docs/planning.md has the format.
    model
        The model they were taken with: catalogue name, or path of a config.json.
    device
        The device they were taken on.
    out
        Write the profile here; `stageline plan --profile FILE` uses it.
    name
        What to call it (default: the file's stem).
    attention_scale
        Factor on attention, for what kernels alone do not show: unequal contexts in a batch.
    json
        Print the residuals as JSON.
    """
    if not 0 < attention_scale <= LARGEST_SCALE:
        raise UsageError(f"--attention-scale {attention_scale}: must lie between 0 and {LARGEST_SCALE:g}")
    shelf = Catalog()
    spec, found = find_model(model, shelf), shelf.device(device).device
    dense, attention, per_sequence = (output.read_file(kernels / file).decode(errors="replace") for file in FILES)
    profile = make_profile(
        dense,
        attention,
        per_sequence,
        name=name or out.stem,
        model=spec.name,
        device=found.name,
        source=kernels.name,
    )
    profile = msgspec.structs.replace(profile, attention_scale=attention_scale)
    output.write_file(out, msgspec.json.encode(profile) + b"\n")
    _show(profile, as_json=json)
    return 0


def _show(profile: Profile, *, as_json: bool) -> None:
    if as_json:
        output.print_json(profile.residuals)
        return
    rows = [[r.of, f"{r.points:,}", f"{r.median:+.2%}", f"{r.p90_absolute:.2%}"] for r in profile.residuals]
    columns = [("residuals, profile / measured - 1", False), ("points", True), ("median", True), ("90 % within", True)]
    output.print_table(f"{profile.name}: {profile.model} on {profile.device}", columns, rows)
