"""The scoreboard: its rows, and their tables."""

from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

Made = Literal["specification", "tables", "fitted elsewhere", "fitted on this family", "fitted on the row"]
MADE: dict[Made, str] = {
    "specification": "catalogue constants and published figures; nothing was fitted to a measured server",
    "tables": "timings of the kernels of that machine",
    "fitted elsewhere": "with a constant that was fitted to rows of another measurement, on other machines",
    "fitted on this family": "constants fitted to other rows of the same measurement; the row itself was not used",
    "fitted on the row": "constants fitted to this very row, among others: an error here is no prediction",
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number, and the emulated one."""

    system: str
    case: str
    metric: str
    unit: str
    measured: float
    emulated: float
    made: Made
    command: str = ""  # that a user types; of all rows of a case the same
    target: float | None = None  # largest good absolute relative error
    peers: str = ""  # published errors of other simulators on this row
    note: str = ""

    @property
    def error(self) -> float:
        """emulated / measured - 1."""
        return self.emulated / self.measured - 1

    @property
    def verdict(self) -> str:
        """Whether the error meets the target; "" without one."""
        if self.target is None:
            return ""
        return "met" if abs(self.error) <= self.target else "missed"


MOST_SHOWN = 60  # rows of a table
HEAD = "| case | metric | measured | emulated | error | target | made from | peers |"
RULE = "|---|---|---:|---:|---:|---|---|---|"


def markdown(rows: Sequence[Row]) -> str:
    """The errors by how rows were made, then one table per system, with its notes and a command below."""
    out = [by_making(rows)]
    for system in dict.fromkeys(row.system for row in rows):
        mine = [row for row in rows if row.system == system]
        if len(mine) > MOST_SHOWN:
            out += [f"### {system}", "", f"{len(mine)} rows, which fidelity.json lists.", ""]
        else:
            out += [f"### {system}", "", HEAD, RULE, *(_line(row) for row in mine), ""]
        out += [f"- {note}" for note in dict.fromkeys(row.note for row in mine) if note] + [""]
        commands = list(dict.fromkeys(row.command for row in mine if row.command))
        if commands:
            more = f" (fidelity.json has all {len(commands)} of this table)" if len(commands) > 1 else ""
            out += [f"The first row as a command{more}:", "", "```", commands[0].replace(" && ", "\n"), "```", ""]
    return "\n".join(out)


def by_making(rows: Sequence[Row]) -> str:
    """Median and largest absolute error of the rows that were made in one way, by system."""
    out = ["### By how rows were made", "", "| made from | system | rows | median error | largest |"]
    out.append("|---|---|---:|---:|---:|")
    for made in MADE:
        for system in dict.fromkeys(row.system for row in rows):
            found = [abs(row.error) for row in rows if row.system == system and row.made == made]
            if found:
                out.append(f"| {made} | {system} | {len(found)} | {median(found):.1%} | {max(found):.1%} |")
    return "\n".join([*out, "", *(f"- *{made}*: {what}" for made, what in MADE.items()), ""])


def _line(row: Row) -> str:
    target = f"{row.target:.0%}: {row.verdict}" if row.target is not None else ""
    return (
        f"| {row.case} | {row.metric} | {row.measured:,.5g} {row.unit} | {row.emulated:,.5g} {row.unit} | "
        f"{row.error:+.1%} | {target} | {row.made} | {row.peers} |"
    )


def document(rows: Sequence[Row]) -> bytes:
    """The rows as JSON, with error and verdict."""
    return msgspec.json.format(
        msgspec.json.encode([msgspec.to_builtins(r) | {"error": r.error, "verdict": r.verdict} for r in rows]), indent=1
    )
