"""Grafana's dashboards as previews: their panels where Grafana puts them, with a real Prometheus's answers.

Matplotlib draws them, not Grafana. They show what a dashboard holds, not how Grafana looks.
"""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

matplotlib.use("Agg")
ROOT = Path(__file__).resolve().parent.parent
BOARDS = ROOT / "deploy/grafana/dashboards"
RATE_INTERVAL = "15s"
_WIDTH_IN, _ROW_IN, _GRID = 11.2, 0.36, 24
_PAD = {"stat": 0.008, "status-history": 0.058}  # left of the axes, as a share of the figure's width
_PAD_LEFT, _PAD_RIGHT = 0.045, 0.008
_TICK_S = 20
_LEGEND_CHARACTERS = 80  # in a line, under a panel of half the width
_UNITS = {"percentunit": (100, " %"), "s": (1, " s"), "Bps": (1e-6, " MB/s"), "bytes": (1e-6, " MB")}

Series = list[dict[str, Any]]


class Prometheus:
    """What panels ask, over one range of time in Unix seconds."""

    def __init__(self, url: str, start_s: float, end_s: float, step_s: float = 1.0) -> None:
        self._url, self.start_s, self.end_s, self._step_s = url, start_s, end_s, step_s

    def ask(self, expression: str) -> Series:
        """The series of an expression, with the dashboard's variables filled in."""
        filled = expression.replace("$__rate_interval", RATE_INTERVAL).replace("$replica", ".*")
        asked = {"query": filled, "start": self.start_s, "end": self.end_s, "step": self._step_s}
        with urllib.request.urlopen(f"{self._url}/api/v1/query_range?{urllib.parse.urlencode(asked)}") as reply:
            found: Series = json.loads(reply.read())["data"]["result"]
        return found


def draw(board: str, source: Prometheus, file: Path) -> None:
    """Draw one dashboard as PNG."""
    panels = [
        panel for panel in json.loads((BOARDS / f"{board}.json").read_text())["panels"] if panel["type"] != "text"
    ]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = Figure(figsize=(_WIDTH_IN, rows * _ROW_IN), dpi=100, facecolor="white")
    for panel in panels:
        axes = figure.add_axes(_place(panel["gridPos"], rows, panel["type"]))
        axes.set_title(panel["title"], fontsize=9, loc="left", fontweight="bold", color="#24292f")
        _KINDS[panel["type"]](axes, panel, source)
    figure.savefig(file)


def _place(grid: dict[str, int], rows: int, kind: str) -> tuple[float, float, float, float]:
    """Left, bottom, width and height of a panel's axes, as shares of the figure."""
    side = _PAD.get(kind, _PAD_LEFT)
    below, above = (0.9, 1.0) if kind == "stat" else (1.5, 1.0)  # rows of the grid for what stands around the axes
    left = grid["x"] / _GRID + side
    bottom = 1 - (grid["y"] + grid["h"] - below) / rows
    return left, bottom, grid["w"] / _GRID - side - _PAD_RIGHT, (grid["h"] - above - below) / rows


def _stat(axes: Axes, panel: dict[str, Any], source: Prometheus) -> None:
    axes.set_axis_off()
    series = [one for target in panel["targets"] for one in source.ask(target["expr"])]
    if not series:
        nothing = panel["fieldConfig"]["defaults"].get("noValue", "No data")
        axes.text(0, 0.5, nothing, fontsize=13, color="#8c959f", va="center")
        return
    latest = max(series, key=lambda one: one["values"][-1][0])
    named = panel["options"].get("textMode") == "value_and_name"
    name = f"{_name(panel['targets'][0], latest)}  " if named else ""
    axes.text(0, 0.5, name + _value(float(latest["values"][-1][1]), panel), fontsize=17, va="center", color="#0b5394")


def _lines(axes: Axes, panel: dict[str, Any], source: Prometheus) -> None:
    found = [(_name(target, one), one) for target in panel["targets"] for one in source.ask(target["expr"])]
    colours = {o["matcher"]["options"]: o["properties"][0]["value"] for o in panel["fieldConfig"]["overrides"]}
    grid = np.arange(source.start_s, source.end_s)
    rows = [_on(grid, one) for _, one in found]
    if panel["fieldConfig"]["defaults"]["custom"].get("stacking"):
        shades = [_colour(colours.get(name)) for name, _ in found]
        axes.stackplot(grid, *[np.nan_to_num(row) for row in rows], labels=[n for n, _ in found], colors=shades)
        axes.set_ylim(0, 1)
    else:
        for (name, _), row in zip(found, rows, strict=True):
            axes.plot(grid, row, linewidth=1, label=name)
        axes.set_ylim(bottom=0)
    _dress(axes, panel, source)
    if found:
        columns = max(1, min(8, _LEGEND_CHARACTERS // (4 + max(len(name) for name, _ in found))))
        axes.legend(
            loc="upper left", bbox_to_anchor=(0, -0.1), ncols=columns, fontsize=6.5, frameon=False, handlelength=1,
            labelspacing=0.2,
        )  # fmt: skip
    else:
        axes.text(0.5, 0.5, "No data", transform=axes.transAxes, ha="center", color="#8c959f")


def _rows_over_time(axes: Axes, panel: dict[str, Any], source: Prometheus) -> None:
    target = panel["targets"][0]
    found = sorted(source.ask(target["expr"]), key=lambda one: str(one["metric"].get("stage", "")))
    grid = np.arange(source.start_s, source.end_s)
    shown = np.array([_on(grid, one) for one in found]) if found else np.zeros((1, 1))
    extent = (source.start_s, source.end_s, len(found), 0)
    axes.imshow(shown, aspect="auto", cmap="BuPu", vmin=0, vmax=1, extent=extent, interpolation="nearest")
    axes.set_yticks([i + 0.5 for i in range(len(found))], [_name(target, one) for one in found], fontsize=6.5)
    _time_axis(axes, source)


def _gauges(axes: Axes, panel: dict[str, Any], source: Prometheus) -> None:
    target = panel["targets"][0]
    found = sorted(source.ask(target["expr"]), key=lambda one: str(one["metric"].get("stage", "")))
    axes.bar([_name(target, one) for one in found], [float(one["values"][-1][1]) for one in found], color="#3274d9")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _value(value, panel)))
    axes.tick_params(labelsize=6.5)


_KINDS = {"stat": _stat, "timeseries": _lines, "status-history": _rows_over_time, "bargauge": _gauges}


def _dress(axes: Axes, panel: dict[str, Any], source: Prometheus) -> None:
    axes.grid(visible=True, color="#eaeef2", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _value(value, panel)))
    axes.tick_params(labelsize=6.5)
    _time_axis(axes, source)


def _time_axis(axes: Axes, source: Prometheus) -> None:
    axes.set_xlim(source.start_s, source.end_s)
    axes.set_xticks(np.arange(source.start_s, source.end_s, _TICK_S))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at - source.start_s:.0f} s"))
    axes.tick_params(axis="x", labelsize=6.5)


def _on(grid: np.ndarray, series: dict[str, Any]) -> np.ndarray:
    """A series on whole seconds; gaps are NaN."""
    row = np.full(len(grid), np.nan)
    for at, value in series["values"]:
        place = round(float(at) - float(grid[0]))
        if 0 <= place < len(grid):
            row[place] = float(value)
    return row


def _name(target: dict[str, Any], series: dict[str, Any]) -> str:
    legend = str(target["legendFormat"])
    if legend == "__auto":
        return ""
    for label, value in series["metric"].items():
        legend = legend.replace("{{" + label + "}}", value)
    return legend


def _value(value: float, panel: dict[str, Any]) -> str:
    scale, unit = _UNITS.get(panel["fieldConfig"]["defaults"]["unit"], (1, ""))
    return f"{value * scale:,.4g}{unit}"


def _colour(value: dict[str, str] | None) -> str:
    """A fixed colour of the dashboard; grey for a series that it gives none."""
    return value["fixedColor"] if value else "#8c959f"
