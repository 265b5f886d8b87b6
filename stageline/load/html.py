"""The report of a load run as one self-contained HTML page."""

from collections.abc import Iterable, Sequence
from html import escape

from stageline.load.summary import LoadSummary
from stageline.load.svg import ChartLine, line_chart
from stageline.load.tables import (
    LATENCY_ROWS,
    STATISTICS,
    STEP_COLUMNS,
    cells,
    clocks,
    figure_rows,
    slo_text,
    step_rows,
)
from stageline.load.timeline import LoadTimeline, Slice
from stageline.report.palette import BUSY, ORANGE, VERMILION
from stageline.units import NS_PER_S

_STYLE = """
body{font:14px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%;margin:1em 0}td,th{padding:2px 8px;text-align:right;border-top:1px solid #ddd}
td:first-child,th:first-child{text-align:left}.facts td{text-align:left}.good{color:#007a33}.bad{color:#b00020}
figure{margin:1.5em 0}figcaption span{margin-left:1em}svg{width:100%}svg text{font-size:11px;fill:#555}
.grid{stroke:#ddd}polyline{stroke-width:1.5}code{background:#f4f4f4;overflow-wrap:anywhere}
"""


def html_report(summary: LoadSummary, timeline: LoadTimeline) -> str:
    """The page."""
    title = f"Load on {summary.model}"
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f"<p><code>{escape(summary.command)}</code></p>" if summary.command else "",
        _verdict(summary),
        _table((), ([name, value] for name, value in figure_rows(summary)), kind="facts"),
        "<h2>Latency from the intended start</h2>",
        *(_latency_table(summary)),
    ]
    if summary.steps:
        parts += ["<h2>Rate steps</h2>", _table(("step", *STEP_COLUMNS), step_rows(summary))]
    parts += ["<h2>Over time</h2><p>Wall time, warm-up included.</p>", *_charts(timeline)]
    if summary.remarks:
        parts += ["<h2>Notes</h2><ul>", *(f"<li>{escape(remark)}</li>" for remark in summary.remarks), "</ul>"]
    parts.append(f"<p>Stageline {escape(summary.version)}, seed {summary.seed}</p></body></html>\n")
    return "\n".join(part for part in parts if part)


def _verdict(summary: LoadSummary) -> str:
    if not summary.complete:
        return '<p class="bad">Incomplete: the run was interrupted.</p>'
    if summary.slo is None:
        return ""
    return f'<p class="{"good" if summary.slo.met else "bad"}">{escape(slo_text(summary))}</p>'


def _latency_table(summary: LoadSummary) -> Iterable[str]:
    for name, values in clocks(summary):
        rows = [[label, *cells(getattr(values.latencies, field))] for label, field in LATENCY_ROWS]
        if name == "emulated":
            rows.append(["queue", *cells(values.latencies.queue_s)])
        yield _table((f"{name} time", *STATISTICS), rows)


def _charts(timeline: LoadTimeline) -> list[str]:
    slices, width_s = timeline.slices, timeline.slice_ns / NS_PER_S

    def line(name: str, colour: str, values: Sequence[float | None]) -> ChartLine:
        return ChartLine(name, colour, [((i + 0.5) * width_s, value) for i, value in enumerate(values)])

    def rate(name: str) -> list[float | None]:
        return [getattr(s, name) / width_s for s in slices]

    x = "seconds of wall time"
    return [
        line_chart(
            [
                line("due", ORANGE, rate("due")),
                line("finished", BUSY, rate("finished")),
                line("failed or rejected", VERMILION, rate("failed")),
            ],
            x_label=x,
            y_label="requests per second",
        ),
        line_chart([line("output", BUSY, rate("output_tokens"))], x_label=x, y_label="tokens per second"),
        line_chart(
            [
                line("mean", BUSY, [_mean_ttft_s(s) for s in slices]),
                line("largest", VERMILION, [s.ttft_max_ns / NS_PER_S if s.finished else None for s in slices]),
            ],
            x_label=x,
            y_label="TTFT in seconds, by the end of the request",
        ),
    ]


def _mean_ttft_s(part: Slice) -> float | None:
    return part.ttft_sum_ns / part.finished / NS_PER_S if part.finished else None


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    top = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="{kind}">{top}{body}</table>'
