"""Fleets: from a file or from pools to a `Fleet`, as the commands and `stageline.run` take it."""

import os
from pathlib import Path

import msgspec

from stageline.api.arguments import require_path
from stageline.api.files import read_file, write_file
from stageline.api.fleet_file import FlagReader, read_fleet_toml
from stageline.api.planning import as_plan
from stageline.engine.fleet import Fleet
from stageline.engine.fleet_check import check_fleet, parse_fleet
from stageline.errors import BadInput
from stageline.plan.schema import Plan
from stageline.report.fleet_report import FleetReport, fleet_report
from stageline.runtime.plans import is_fleet_file, read_plan_file


class FleetPlan(msgspec.Struct, frozen=True):
    """A fleet, every pool planned. `fleet` is what engines and the canonical file share."""

    fleet: Fleet

    def report(self) -> FleetReport:
        """What each pool holds, and what KV transfers take; what `stageline fleet --json` prints."""
        return fleet_report(self.fleet)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the canonical file, plans included. Raises UsageError where that can't be done."""
        data = msgspec.json.format(self.fleet.canonical(), indent=1) + b"\n"
        write_file(require_path("write: path", path), data)


def read_fleet(path: Path, flags: FlagReader) -> Fleet:
    """The fleet in a TOML file, or in a canonical one. Raises BadInput, DoesNotFit, and UsageError for no file."""
    data = read_file(path)
    in_json = data.lstrip()[:1] == b"{"
    return parse_fleet(data, f"fleet {path}") if in_json else read_fleet_toml(path, data, flags)


def read_plan_or_fleet(path: Path, flags: FlagReader) -> Plan | Fleet:
    """What `run` takes. Raises as `read_fleet` and `read_plan_file` do."""
    return read_fleet(path, flags) if path.suffix == ".toml" or is_fleet_file(path) else read_plan_file(path)


def as_plan_or_fleet(given: object) -> Plan | Fleet:
    """What `run` was given. Raises BadInput for a file that holds neither, UsageError for anything else."""
    if isinstance(given, FleetPlan):
        return given.fleet
    if isinstance(given, Fleet):
        check_fleet(given, "the fleet")
        return given
    if isinstance(given, (str, os.PathLike)):
        path = require_path("run: plan", given)
        if path.suffix == ".toml":
            raise BadInput(f"fleet {path}", None, "its pools are not planned yet", "give run what plan_fleet returns")
        if is_fleet_file(path):
            return parse_fleet(read_file(path), f"fleet {path}")
    return as_plan(given, "run")
