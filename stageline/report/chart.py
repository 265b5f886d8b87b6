"""The pipeline chart: where every stage spent its time and, with events, the first microbatches on their way through.

matplotlib is loaded only when a chart is drawn. The same run gives the same SVG bytes: no dates, fixed ids.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageline.engine.causes import CAUSE, SHOWN
from stageline.engine.types import StageRecord
from stageline.report.palette import BUSY, CAUSE_COLOURS, HATCHES, SERVICES
from stageline.report.summary import Summary
from stageline.report.timeline import StageTimeline
from stageline.units import NS_PER_S, counted, format_duration, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE: Any = {
    "svg.hashsalt": "stageline",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.5,
    "hatch.color": "#7A7A7A",
}
_DPI = 150
_MAX_SHAPES = 500  # drawn one by one in an SVG


def draw_chart(
    summary: Summary, stages: Sequence[StageRecord], timeline: StageTimeline | None, paths: Sequence[Path]
) -> None:
    """Writes the chart to each path; its suffix (.svg, .png) is the format."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    with plt.rc_context(_STYLE):
        figure = _figure(summary, stages, timeline)
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, dpi=_DPI, metadata=metadata)
        plt.close(figure)


def _figure(summary: Summary, stages: Sequence[StageRecord], timeline: StageTimeline | None) -> "Figure":
    import matplotlib.pyplot as plt  # noqa: PLC0415

    rows = sum(s.replica == 0 for s in stages)
    if timeline is None:
        figure, occupancy = plt.subplots(figsize=(11, 5), layout="constrained")
    else:
        lower = min(7.0, 1.6 + 0.11 * max(rows, 16))
        figure, (occupancy, lanes) = plt.subplots(
            2, 1, figsize=(11, 4.4 + lower), height_ratios=(4.4, lower), layout="constrained"
        )
        whose = f" of replica {summary.replica_name(0)}" if summary.topology.replicas > 1 else ""
        _draw_timeline(lanes, timeline, rows, whose)
    _draw_occupancy(occupancy, stages, summary.replica_name)
    figure.suptitle(_title(summary), x=0.01, ha="left", fontsize=11, fontweight="bold")
    occupancy.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8, reverse=True)
    return figure


def _title(summary: Summary) -> str:
    t = summary.topology
    stages = counted(t.stages, "stage")
    size = t.fleet or (f"{t.replicas} x {stages}" if t.replicas > 1 else f"{stages}, {counted(t.visits, 'visit')}")
    rate = summary.measured.served_output_tokens_per_s if summary.measured else 0.0
    return (
        f"{t.model} on {t.devices} x {t.device} ({size}): "
        f"{rate:,.0f} output tokens/s, bubbles {summary.bubble_ratio:.1%}\n"
        f"{shorten(summary.workload, 110)}"
    )


def _draw_occupancy(axes: "Axes", stages: Sequence[StageRecord], name: Callable[[int], str]) -> None:
    """Stacked bars, one per stage, in % of the run's window; replicas side by side."""
    ordered = sorted(stages, key=lambda s: (s.replica, s.stage))
    places = range(len(ordered))
    bottom = [0.0] * len(ordered)
    layers = [("busy", [s.busy_ns for s in ordered])]
    layers += [(cause, [s.idle_ns.get(cause, 0) for s in ordered]) for cause in SHOWN]
    width = 0.86 if len(ordered) <= 120 else 1.0
    for part, values in layers:
        if not any(values):
            continue
        heights = [100 * v / (s.window_ns or 1) for v, s in zip(values, ordered, strict=True)]
        colour = CAUSE_COLOURS.get(part, BUSY)
        label = part if part == "busy" else f"{part}: {CAUSE[part].meaning}"
        axes.bar(places, heights, width, bottom, color=colour, label=label, hatch=HATCHES.get(part), edgecolor="none")
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes.set(ylim=(0, 100), xlim=(-0.6, len(ordered) - 0.4), ylabel="share of the run's time (%)")
    axes.set_xlabel("stage" if len({s.replica for s in stages}) == 1 else "replica/stage")
    _stage_ticks(axes, ordered, name)


def _stage_ticks(axes: "Axes", ordered: Sequence[StageRecord], name: Callable[[int], str]) -> None:
    several = len({s.replica for s in ordered}) > 1
    places = range(0, len(ordered), _step(len(ordered)))
    names = [f"{name(ordered[i].replica)}/{ordered[i].stage}" if several else str(ordered[i].stage) for i in places]
    axes.set_xticks(list(places), names)


def _step(count: int) -> int:
    """The step between stages that are named, so that at most 30 are."""
    return next(s for s in (1, 2, 5, 10, 20, 50, 100, 1000, 10**9) if count / s <= 30)


def _draw_timeline(axes: "Axes", timeline: StageTimeline, rows: int, whose: str) -> None:
    """One lane per stage, stage 0 on top; services in blues, gaps in the colour of their cause."""
    unit, size_ns = _unit(timeline.end_ns - timeline.start_ns)
    for cause, colour in CAUSE_COLOURS.items():
        pieces = [(stage, begin, length) for stage, c, begin, length in timeline.gaps if c == cause]
        _add_boxes(axes, timeline, size_ns, pieces, facecolors=colour, hatch=HATCHES.get(cause))
    services = [(s.stage, s.start_ns, s.end_ns - s.start_ns) for s in timeline.services]
    colours = [SERVICES[s.number % len(SERVICES)] for s in timeline.services]
    _add_boxes(axes, timeline, size_ns, services, facecolors=colours)
    axes.set(ylim=(rows - 0.4, -0.6), xlim=(0, (timeline.end_ns - timeline.start_ns) / size_ns), ylabel="stage")
    axes.set_yticks(range(0, rows, _step(rows)))
    since = format_duration(timeline.start_ns)
    axes.set_xlabel(
        f"emulated time ({unit}) since {since}: the first microbatches{whose}, neighbours in different blues"
    )


def _add_boxes(
    axes: "Axes", timeline: StageTimeline, size_ns: int, pieces: Sequence[tuple[int, int, int]], **style: Any
) -> None:
    """Boxes of (stage, start_ns, length_ns). Many boxes go into an SVG as one bitmap, which keeps the file small."""
    from matplotlib.collections import PolyCollection  # noqa: PLC0415

    corners = []
    for stage, begin_ns, length_ns in pieces:
        left = (begin_ns - timeline.start_ns) / size_ns
        right, top, bottom = left + length_ns / size_ns, stage - 0.43, stage + 0.43
        corners.append(((left, top), (right, top), (right, bottom), (left, bottom)))
    axes.add_collection(PolyCollection(corners, linewidths=0, rasterized=len(corners) > _MAX_SHAPES, **style))


def _unit(range_ns: int) -> tuple[str, int]:
    for unit, size_ns in (("s", NS_PER_S), ("ms", 1_000_000), ("us", 1000)):
        if range_ns >= 3 * size_ns:
            return unit, size_ns
    return "ns", 1
