"""A comparison as text, with every run's change against the first."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stageline.report.compare import SAME_RATIO, Comparison, ComparisonRow
from stageline.units import shorten

_STYLES = {"better": "green", "worse": "red", "": ""}
_WIDTH = 24  # of a setting's value


def comparison_table(comparison: Comparison) -> RenderableType:
    """Settings that differ, then figures; rows that are zero in every run are left out."""
    labels = short_names(comparison.names)
    parts: list[RenderableType] = []
    if comparison.changes:
        parts.append(_changes(comparison, labels))
    else:
        parts.append(Text("the runs have the same settings"))
    parts.append(_figures(comparison, labels))
    return Group(*parts)


def short_names(names: list[str]) -> list[str]:
    """The last part of each path if those differ, else the whole paths."""
    last = [name.rstrip("/").rpartition("/")[2] for name in names]
    return last if len(set(last)) == len(names) else names


def _changes(comparison: Comparison, labels: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("setting")
    for label in labels:
        table.add_column(label, overflow="fold")
    for name, values in comparison.changes:
        table.add_row(name, *(shorten(value, _WIDTH * 2) for value in values))
    return table


def _figures(comparison: Comparison, labels: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    for i, label in enumerate(labels):
        table.add_column(label, justify="right", no_wrap=True)
        if i:
            table.add_column("", justify="right", no_wrap=True)
    group = ""
    for row in comparison.rows:
        if not any(row.values):
            continue
        if group and row.group != group:
            table.add_section()
        group = row.group
        cells: list[Text | str] = [row.text[0]]
        for run in range(1, len(labels)):
            cells += [row.text[run], Text(change_text(row, run), style=_STYLES[row.verdict(run)])]
        table.add_row(row.name, *cells)
    return table


def change_text(row: ComparisonRow, run: int) -> str:
    """Such as `-12 %` or `x 3.1`; empty if the first run has no value."""
    change = row.change(run)
    if change is None:
        return ""
    if abs(change) < SAME_RATIO:
        return "="
    return f"x {1 + change:.1f}" if change > 1 else f"{100 * change:+.1f} %"
