"""A comparison as one HTML page."""

from collections.abc import Sequence
from itertools import groupby

from stageline.engine.causes import SHOWN
from stageline.report.compare import ComparedRun, Comparison, ComparisonRow
from stageline.report.compare_table import change_text, short_names
from stageline.report.idle import cause_shares
from stageline.report.page.render import asset, css_colours, escape, fill_template


def comparison_page(comparison: Comparison, runs: Sequence[ComparedRun]) -> str:
    """The page's text."""
    labels = short_names(comparison.names)
    return fill_template(
        asset("compare.html"),
        {
            "TITLE": escape(" against ".join(labels)),
            "STYLE": css_colours() + asset("page.css"),
            "HEADING": escape(" against ".join(labels)),
            "CHANGES": _changes(comparison, labels),
            "FIGURES": _figures(comparison, labels),
            "BARS": "".join(_bar(label, run) for label, run in zip(labels, runs, strict=True)),
            "LEGEND": _legend(runs),
        },
    )


def _changes(comparison: Comparison, labels: list[str]) -> str:
    if not comparison.changes:
        return "<p>The runs have the same settings.</p>"
    body = "".join(
        f"<tr><th scope=row>{escape(name)}</th>{''.join(f'<td>{escape(v)}</td>' for v in values)}</tr>"
        for name, values in comparison.changes
    )
    return f"<table class=words>{_head('', labels)}<tbody>{body}</tbody></table>"


def _head(first: str, labels: list[str]) -> str:
    return f"<thead><tr><th>{first}</th>{''.join(f'<th scope=col>{escape(name)}</th>' for name in labels)}</tr></thead>"


def _figures(comparison: Comparison, labels: list[str]) -> str:
    groups = groupby((row for row in comparison.rows if any(row.values)), key=lambda row: row.group)
    parts = []
    for group, rows in groups:
        body = "".join(_figure(row, len(labels)) for row in rows)
        parts.append(f"<tbody><tr><th colspan={len(labels) + 1} class=group>{escape(group)}</th></tr>{body}</tbody>")
    return f"<table class=figures>{_head('', labels)}{''.join(parts)}</table>"


def _figure(row: ComparisonRow, runs: int) -> str:
    """One row. The bar under each value is relative to the largest value of the row."""
    top = max(v or 0 for v in row.values) or 1
    cells = []
    for run in range(runs):
        width = 100 * (row.values[run] or 0) / top
        verdict = row.verdict(run)
        change = f" <span class='{verdict or 'quiet'}'>{escape(change_text(row, run))}</span>" if run else ""
        bar = f"<i style='width:{width:.1f}%'></i>"
        cells.append(f"<td>{bar}<b>{escape(row.text[run])}</b>{change}</td>")
    return f"<tr><th scope=row>{escape(row.name)}</th>{''.join(cells)}</tr>"


def _bar(label: str, run: ComparedRun) -> str:
    shares = cause_shares(run.stages)
    parts = "".join(
        f"<i style='width:{100 * shares[name]:.3f}%;background:var(--{name})' title='{name} {shares[name]:.1%}'></i>"
        for name in ("busy", *SHOWN)
        if shares[name]
    )
    return f"<div class=share><span>{escape(label)}</span><div>{parts}</div></div>"


def _legend(runs: Sequence[ComparedRun]) -> str:
    names = [n for n in ("busy", *SHOWN) if any(cause_shares(run.stages)[n] for run in runs)]
    return "".join(f"<span><i style='background:var(--{name})'></i>{name}</span>" for name in names)
