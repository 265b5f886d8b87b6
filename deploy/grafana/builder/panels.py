"""As much of Grafana's dashboard JSON as the dashboards need, typed. For Grafana 11 and 12 (schemaVersion 39)."""

from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["s", "percentunit", "short", "bytes", "Bps", "reqps", "ops", "none"]
Json = dict[str, Any]
SOURCE: Json = {"type": "prometheus", "uid": "prometheus"}
WIDTH = 24
RAMP = "continuous-BlPu"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and how its series are named."""

    expr: str
    legend: str = ""
    instant: bool = False

    def json(self, ref: str) -> Json:
        """As a target."""
        return {
            "datasource": SOURCE,
            "expr": self.expr,
            "legendFormat": self.legend or "__auto",
            "refId": ref,
            "range": not self.instant,
            "instant": self.instant,
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel; `kind` is Grafana's plugin id."""

    title: str
    kind: str
    queries: tuple[Query, ...] = ()
    unit: Unit = "short"
    width: int = 12
    height: int = 8
    text: str = ""  # what it shows, under the (i)
    options: Json = field(default_factory=dict)
    custom: Json = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    overrides: tuple[Json, ...] = ()

    def json(self, number: int, x: int, y: int) -> Json:
        """As an element of `panels`."""
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.text,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [query.json(chr(ord("A") + i)) for i, query in enumerate(self.queries)],
            "options": self.options,
            "fieldConfig": {
                "defaults": {"unit": self.unit, "custom": self.custom, **self.defaults},
                "overrides": list(self.overrides),
            },
        }


def lines(title: str, *queries: Query, unit: Unit = "short", width: int = 12, text: str = "", **more: Any) -> Panel:
    """Series over time."""
    many = {"displayMode": "list", "placement": "bottom", "calcs": []}
    options = {"legend": many, "tooltip": {"mode": "multi", "sort": "desc"}}
    custom = {"lineWidth": 1, "fillOpacity": 0, "showPoints": "never"}
    defaults = {"min": 0} | more.pop("defaults", {})
    return Panel(title, "timeseries", queries, unit, width, text=text, options=options, custom=custom,
                 defaults=defaults, **more)  # fmt: skip


def stacked(title: str, *queries: Query, colours: dict[str, str], unit: Unit = "percentunit", **more: Any) -> Panel:
    """Parts of a whole over time, in the report's colours."""
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "none"}}
    custom = {"lineWidth": 0, "fillOpacity": 85, "stacking": {"mode": "normal"}, "showPoints": "never"}
    overrides = tuple(_colour(name, colour) for name, colour in colours.items())
    return Panel(title, "timeseries", queries, unit, options=options, custom=custom, overrides=overrides,
                 defaults={"min": 0, "max": 1}, **more)  # fmt: skip


def number(
    title: str,
    query: Query,
    *,
    unit: Unit = "short",
    width: int = 4,
    text: str = "",
    named: bool = False,
    without: str = "",
) -> Panel:
    """The latest value, large; `named` shows the series' name too, `without` stands for no series at all."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "colorMode": "none",
        "graphMode": "none" if named else "area",
        "textMode": "value_and_name" if named else "value",
    }
    return Panel(
        title, "stat", (query,), unit, width, 4, text, options, defaults={"noValue": without} if without else {}
    )


def rows_over_time(title: str, query: Query, *, text: str, height: int) -> Panel:
    """A row per series, coloured by value from 0 to 1: readable with eight rows and with sixty."""
    options = {"showValue": "never", "rowHeight": 0.95, "colWidth": 1, "legend": {"showLegend": False}}
    defaults = {"min": 0, "max": 1, "color": {"mode": RAMP}}
    custom = {"lineWidth": 0, "fillOpacity": 100}
    return Panel(title, "status-history", (query,), "percentunit", WIDTH, height, text, options, custom, defaults)


def gauges(title: str, query: Query, *, text: str, width: int = 12) -> Panel:
    """A bar per series, latest value, from 0 to 1."""
    options = {
        "orientation": "vertical",
        "displayMode": "basic",
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "valueMode": "hidden",
        "minVizWidth": 4,
        "namePlacement": "auto",
    }
    steps = [{"color": "blue", "value": None}, {"color": "orange", "value": 0.8}, {"color": "red", "value": 0.95}]
    defaults = {"min": 0, "max": 1, "thresholds": {"mode": "absolute", "steps": steps}}
    return Panel(title, "bargauge", (query,), "percentunit", width, 8, text, options, {}, defaults)


def words(title: str, markdown: str, *, width: int = 12, height: int = 4) -> Panel:
    """Text."""
    return Panel(title, "text", (), "none", width, height, options={"mode": "markdown", "content": markdown})


def _colour(name: str, colour: str) -> Json:
    fixed = {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}
    return {"matcher": {"id": "byName", "options": name}, "properties": [fixed]}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Panels from left to right, top to bottom."""

    uid: str
    title: str
    text: str
    panels: tuple[Panel, ...]

    def json(self) -> Json:
        """What Grafana loads."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.text,
            "tags": ["stageline"],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "5s",
            "time": {"from": "now-15m", "to": "now"},
            "timezone": "browser",
            "templating": {"list": [_replicas()]},
            "annotations": {"list": []},
            "links": [{"type": "dashboards", "title": "Stageline", "tags": ["stageline"], "asDropdown": False}],
            "panels": _placed(self.panels),
        }


def _placed(panels: tuple[Panel, ...]) -> list[Json]:
    placed, x, y, tallest = list[Json](), 0, 0, 0
    for i, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        placed.append(panel.json(i, x, y))
        x, tallest = x + panel.width, max(tallest, panel.height)
    return placed


def _replicas() -> Json:
    query = "label_values(stageline_stage_busy_seconds_total, replica)"
    return {
        "name": "replica",
        "label": "Replica",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "replica"},
        "definition": query,
        "refresh": 2,
        "sort": 3,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
