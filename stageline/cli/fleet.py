"""`stageline fleet`: plans the pools of a fleet file and checks that they fit together.

`plan_fleet` is part of the Python API. It is here because the file gives plans by the flags of a command.
"""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.api.arguments import require_path
from stageline.api.fleets import FleetPlan, read_fleet
from stageline.cli.groups import OUTPUT
from stageline.cli.output import print_json, print_lines, print_plain, print_table
from stageline.cli.pool_flags import PoolFlags
from stageline.report.fleet_report import FleetReport, PoolRow, TransferRow
from stageline.units import bytes_text, counted, time_text


def plan_fleet(path: str | os.PathLike[str]) -> FleetPlan:
    """Plan the pools of a fleet file, in TOML or in its canonical form, and check it: `stageline fleet`.

    `run` takes what it returns. Raises BadInput with the place in the file, and DoesNotFit naming the pool.
    """
    return FleetPlan(read_fleet(require_path("plan_fleet: path", path), PoolFlags()))


def fleet_command(
    file: Annotated[Path, Parameter(help="Fleet file, in TOML or as -o writes it.")],
    *,
    out: Annotated[
        Path | None,
        Parameter(name=("-o", "--output"), group=OUTPUT, help="Write the canonical fleet file here, plans included."),
    ] = None,
    json: Annotated[bool, Parameter(negative="", group=OUTPUT, help="Print JSON instead of tables.")] = False,
) -> None:
    """Plan the pools of a fleet file, and check that they fit together."""
    planned = plan_fleet(file)
    if out is not None:
        planned.write(out)
    found = planned.report()
    if json:
        print_json(found)
        return
    _print_pools(found)
    print_lines(_summary_lines(found))
    if commands := [row.command for row in found.pools if row.command]:
        print_lines(["", "the plan of each pool is that of"])
        print_plain([f"  {command}" for command in dict.fromkeys(commands)])


def _print_pools(found: FleetReport) -> None:
    columns = [("pool", False), ("role", False), ("replicas", True), ("devices", True), ("model", False)]
    columns += [("each", False), ("engine", False), ("KV room", True), ("requests", True)]
    print_table(found.label, columns, [_cells(row) for row in found.pools])


def _cells(row: PoolRow) -> list[str]:
    return [
        row.name,
        row.role,
        f"{row.replicas:,}",
        f"{row.devices:,} x {row.device}",
        row.model,
        row.divided or "-",
        row.serving_engine or "-",
        bytes_text(row.kv_bytes),
        f"{row.requests:,} of {row.context_tokens:,} tokens",
    ]


def _summary_lines(found: FleetReport) -> list[str]:
    front_end = f", a request reaches it after {time_text(found.front_end_ns)}" if found.front_end_ns else ""
    return [
        f"in all            {counted(found.devices, 'device')}, {counted(found.replicas, 'replica')}",
        f"routing           {found.balance}{front_end}",
        *(_transfer_line(row) for row in found.transfers),
    ]


def _transfer_line(row: TransferRow) -> str:
    times = ", ".join(
        f"{time_text(p.time_ns)} for a prompt of {p.prompt_tokens:,} ({bytes_text(p.bytes)})" for p in row.prompts
    )
    per_token = f"{bytes_text(row.bytes_per_token)} of KV per token at {bytes_text(row.bytes_per_s)}/s"
    return f"KV transfer       {row.source} to {row.target}: {per_token}; {times}"
