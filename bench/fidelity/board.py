"""The scoreboard: its rows, and their tables."""

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number, and the emulated one."""

    system: str
    case: str
    metric: str
    unit: str
    measured: float
    emulated: float
    basis: str  # "specification", or what was fitted
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


HEAD = "| case | metric | measured | emulated | error | target | basis | peers |"
RULE = "|---|---|---:|---:|---:|---|---|---|"


def markdown(rows: list[Row]) -> str:
    """One table per system, with its notes below."""
    out = []
    for system in dict.fromkeys(row.system for row in rows):
        mine = [row for row in rows if row.system == system]
        out += [f"### {system}", "", HEAD, RULE, *(_line(row) for row in mine), ""]
        out += [f"- {note}" for note in dict.fromkeys(row.note for row in mine) if note] + [""]
    return "\n".join(out)


def _line(row: Row) -> str:
    target = f"{row.target:.0%}: {row.verdict}" if row.target is not None else ""
    return (
        f"| {row.case} | {row.metric} | {row.measured:,.5g} {row.unit} | {row.emulated:,.5g} {row.unit} | "
        f"{row.error:+.1%} | {target} | {row.basis} | {row.peers} |"
    )


def document(rows: list[Row]) -> bytes:
    """The rows as JSON, with error and verdict."""
    return msgspec.json.format(
        msgspec.json.encode([msgspec.to_builtins(r) | {"error": r.error, "verdict": r.verdict} for r in rows]), indent=1
    )
