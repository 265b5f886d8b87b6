"""`sheet.html`: a run on one printable sheet, for whoever decides about the cluster and does not read pipelines.

Whatever stands there was measured in the run, or tried by an earlier `stageline tune` on it; nothing is extrapolated.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stageline.engine.causes import CAUSE, SHOWN
from stageline.engine.types import StageRecord
from stageline.errors import BadInput
from stageline.report.distributions import Latency
from stageline.report.grouping import group_stages
from stageline.report.page.render import asset, css_colours, escape, fill_template
from stageline.report.pool_summary import PoolSummary
from stageline.report.rundir import RERUN, read_stages, read_summary
from stageline.report.settings import settings_text
from stageline.report.slo import Slo, parse_slo
from stageline.report.summary import Summary
from stageline.report.text_report import judged, tuning_lines
from stageline.report.tuned import read_tune
from stageline.units import NS_PER_S, figure_text, format_duration, shorten

MAX_BARS = 10  # rows of the picture
MAX_BINDS, MAX_TRIED = 3, 2  # lines of what binds, and of what was tried
MAX_TEXT = 200  # characters of a command and of a workload, which may be of any length
Pair = tuple[str, str]

_COMMA = re.compile(r",(?=[A-Za-z])")


def write_sheet(directory: Path, path: Path) -> None:
    """One self-contained HTML file for one sheet of paper. BadInput when the run is damaged; OSError."""
    summary, stages = read_summary(directory), read_stages(directory)
    if not summary.complete or not stages:
        raise BadInput(str(directory), None, "the run broke off and has no stages", RERUN)
    tuned = read_tune(directory, summary.digest)
    tried = tuning_lines(summary, directory, tuned, MAX_TRIED) or ["the requests of this run can't be had again"]
    if tuned is None:
        tried = [f"nothing yet; {tried[0]}"]
    text = fill_template(
        asset("sheet.html"),
        {
            "TITLE": escape(f"{summary.topology.model} on {summary.topology.devices} x {summary.topology.device}"),
            "STYLE": css_colours() + asset("sheet.css"),
            "VERDICT": _verdict(summary),
            "PLAN": _definitions(plan_words(summary)),
            "SERVICE": _definitions(service_words(summary)),
            "ROOM": _definitions(room_words(summary, stages)),
            "COST": _definitions(cost_words(summary)),
            "BARS": _bars(stages, summary.replica_name),
            "BINDS": _items([line.seen for line in summary.binds[:MAX_BINDS]] or ["nothing stands out"]),
            "TRIED": _items(tried),
            "COMMAND": escape(shorten(summary.command or "-", MAX_TEXT)),
            "DIGEST": escape(summary.digest or "-"),
        },
    )
    path.write_text(text, encoding="utf-8")


def plan_words(summary: Summary) -> list[Pair]:
    """The plan in words; what an older plan does not say is left out."""
    t, made = summary.topology, summary.plan
    each = t.devices // t.replicas
    copies = f", {t.replicas} replicas of {each}" if t.replicas > 1 and len(summary.pools) < 2 else ""
    rows = [("devices", f"{t.devices} x {t.device}{copies}")]
    rows += [(f"pool {pool.name}", _pool_words(pool)) for pool in summary.pools]
    if "tp" in made and len(summary.pools) < 2:
        axes = [
            f"{int(made[name])} {words}"
            for name, words in (
                ("pp", "pipeline stages"), ("tp", "tensor ranks in each"), ("ep", "expert ranks"),
                ("cp", "context ranks"),
            )
            if int(made.get(name, 1)) > 1
        ]  # fmt: skip
        rows.append(("a replica", ", ".join(axes) or "one device"))
    formats = [f"{label} {made[name]}" for name, label in (("weights", "weights"), ("kv_type", "KV")) if name in made]
    if formats:
        rows.append(("formats", ", ".join(formats)))
    if context := int(made.get("context_tokens", 0)):
        rows.append(("sized for", f"contexts of {context:,} tokens"))
    if len(summary.pools) < 2 and (engine := str(summary.settings.get("serving_engine", ""))):
        rows.append(("driven as", f"{engine}: {settings_text(summary.settings)}"))
    return [*rows, ("load", shorten(summary.workload, MAX_TEXT))]


def _pool_words(pool: PoolSummary) -> str:
    engine = f", {name}" if (name := pool.settings.get("serving_engine")) else ""
    role = "" if pool.role == "both" else f", {pool.role}"
    return f"{pool.label} on {pool.devices} x {pool.device}{role}{engine}; busy for {pool.busy_ratio:.0%} of the time"


def service_words(summary: Summary) -> list[Pair]:
    """What users get: rates of the measurement window, latencies of all requests, and their margin to the objective."""
    counts, slo = summary.requests, objective(summary)
    rows = [("requests", f"{counts['finished']:,} of {counts['total']:,} finished")]
    if m := summary.measured:
        if m.offered_requests_per_s is not None:
            rows.append(("offered", f"{figure_text(m.offered_requests_per_s)} requests/s"))
        tokens = f"{figure_text(m.served_output_tokens_per_s)} output tokens/s"
        rows.append(("served", f"{figure_text(m.served_requests_per_s)} requests/s, {tokens}; measured: {m.window}"))
        if m.goodput_requests_per_s is not None:
            rows.append(("goodput", f"{figure_text(m.goodput_requests_per_s)} requests/s kept the objective"))
        if m.remark:
            rows.append(("remark", m.remark))
    bounds = (
        ("time to first token", summary.ttft_s, slo.ttft_ns if slo else None),
        ("time per token", summary.tpot_s, slo.tpot_ns if slo else None),
        ("whole request", summary.e2e_s, slo.e2e_ns if slo else None),
    )
    return rows + [(name, _latency(found, bound)) for name, found, bound in bounds]


def room_words(summary: Summary, stages: Sequence[StageRecord]) -> list[Pair]:
    """How much of the cluster was in use, and what a replica would have to carry if another were lost."""
    t = summary.topology
    busiest = max((s.busy_ns / s.window_ns for s in stages if s.window_ns), default=0.0)
    rows = [
        ("busiest stage", f"worked for {busiest:.0%} of the time"),
        ("KV memory", f"at most {figure_text(100 * summary.kv_peak_ratio)} % full"),
    ]
    if (m := summary.measured) and m.offered_requests_per_s is not None and t.replicas > 1 and len(summary.pools) < 2:
        now, then = (m.offered_requests_per_s / n for n in (t.replicas, t.replicas - 1))
        lost = f"{figure_text(then)} requests/s each instead of {figure_text(now)}; not tried here"
        rows.append(("one replica lost", f"the others would have to serve {lost}"))
    return rows


def cost_words(summary: Summary) -> list[Pair]:
    """Money, if a price was given."""
    cost = summary.cost
    if cost is None:
        return [("price", "none was given: make the run with --price")]
    million = cost.per_million_output_tokens
    return [
        ("price", f"{figure_text(cost.per_device_hour)} per device and hour"),
        ("per hour", figure_text(cost.per_hour)),
        ("per million output tokens", "-" if million is None else figure_text(million)),
    ]


def objective(summary: Summary) -> Slo | None:
    """The bounds that the run was held to; None without an objective, or when the run does not say."""
    return parse_slo(summary.rerun.slo) if summary.rerun and summary.rerun.slo else None


def _latency(found: Latency, bound_ns: int | None) -> str:
    if found.p50 is None or found.p99 is None:
        return "-"
    text = f"{format_duration(found.p50 * NS_PER_S)} median, {format_duration(found.p99 * NS_PER_S)} p99"
    if not bound_ns:
        return text
    left = 1 - found.p99 * NS_PER_S / bound_ns
    over = f"p99 is {-left:.0%} over it" if left > -1 else f"p99 is {figure_text(1 - left)} times that"
    margin = f"{left:.0%} of it left at p99" if left >= 0 else over
    return f"{text}; allowed {format_duration(bound_ns)}: {margin}"


def _verdict(summary: Summary) -> str:
    slo = summary.slo
    if slo is None:
        return '<p class="verdict">No objective was given (--slo), so the run was not judged.</p>'
    kind, said = ("met", "Objective met") if slo.met else ("missed", "Objective missed")
    text = f"{said}: {slo.objective}; {slo.attainment:.2%} of the requests kept it{judged(summary)}."
    return f'<p class="verdict {kind}">{escape(text)}</p>'


def _definitions(rows: Iterable[Pair]) -> str:
    """Names and values; a long value without spaces, such as a workload, breaks after a comma."""
    return "".join(f"<dt>{escape(name)}</dt><dd>{_breaking(escape(value))}</dd>" for name, value in rows)


def _breaking(text: str) -> str:
    """Text that may break after a comma with no space behind it, but not within a number."""
    return _COMMA.sub(",<wbr>", text)


def _items(lines: Iterable[str]) -> str:
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


def _bars(stages: Sequence[StageRecord], name: Callable[[int], str]) -> str:
    """Where the time of each stage went, as bars of parts, and a legend of the parts that occur."""
    groups = group_stages(stages, MAX_BARS, name)
    names = ["busy", *(c for c in SHOWN if any(g.idle_ratio[c] >= 0.005 for g in groups))]
    rows = []
    for group in groups:
        shares = [("busy", group.busy_ratio), *((c, group.idle_ratio[c]) for c in names[1:])]
        parts = "".join(f'<i style="flex:{s:.4f};background:var(--{c})"></i>' for c, s in shares if s)
        rows.append(f"<span>{escape(group.label)}</span><div>{parts}</div><span>{group.busy_ratio:.0%}</span>")
    meanings = {"busy": "working", **{c: f"{c}: {CAUSE[c].meaning}" for c in names[1:]}}
    legend = "".join(f'<li><i style="background:var(--{c})"></i>{escape(meanings[c])}</li>' for c in names)
    return f'<div class="bars">{"".join(rows)}</div><ul class="legend">{legend}</ul>'
