"""Dashboards and rules: fresh, well-formed, and asking only for what exists."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from deploy.grafana.builder.dashboards import ALL
from deploy.grafana.builder.panels import SOURCE, WIDTH
from stageline.runtime.metric_names import OWN
from stageline.runtime.vllm_names import DROP_IN

LABELS = {m.name: set(m.labels) for m in (*OWN, *DROP_IN)}
HISTOGRAMS = {m.name for m in (*OWN, *DROP_IN) if m.kind == "histogram"}
TARGET = {"job", "instance"}
PANELS = {"bargauge", "stat", "status-history", "text", "timeseries"}  # of Grafana itself, no plugin needed
FOREIGN = {"up", "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes"}


def plain(expr: str) -> str:
    """What Grafana would send."""
    return expr.replace("$__rate_interval", "20s").replace("$replica", ".*")


def expressions() -> Iterator[tuple[str, str]]:
    """Place and expression of every query of every dashboard."""
    for name, dashboard in ALL.items():
        for panel in dashboard.panels:
            for query in panel.queries:
                yield f"{name}: {panel.title}", plain(query.expr)


def selectors(node: Any) -> Iterator[Any]:
    """The vector selectors of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    for child in ("lhs", "rhs", "expr", "param"):
        yield from selectors(getattr(node, child)) if getattr(node, child, None) is not None else ()
    for argument in getattr(node, "args", None) or ():
        yield from selectors(argument)


def rules(root: Path) -> list[dict[str, Any]]:
    """Every rule, recording and alerting."""
    groups = yaml.safe_load((root / "deploy/prometheus/rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_query_asks_for_what_exists(root: Path) -> None:
    recorded = {rule["record"]: {"stage", "replica"} for rule in rules(root) if "record" in rule}
    found = [*expressions(), *((rule.get("record") or rule["alert"], rule["expr"]) for rule in rules(root))]
    known = LABELS | recorded | {name: set[str]() for name in FOREIGN}
    seen = set()
    for place, expr in found:
        for selector in selectors(promql_parser.parse(expr)):
            base = (
                selector.name.removesuffix("_bucket")
                if selector.name.removesuffix("_bucket") in HISTOGRAMS
                else selector.name
            )
            assert base in known, f"{place}: no metric {selector.name}"
            labels = {matcher.name for matcher in selector.matchers.matchers}
            assert labels <= known[base] | TARGET, f"{place}: {selector.name} has no label {labels - known[base]}"
            seen.add(base)
    assert len(seen) > 30


@pytest.mark.parametrize("name", ALL)
def test_committed_dashboards_are_fresh(root: Path, name: str) -> None:
    committed = json.loads((root / f"deploy/grafana/dashboards/{name}.json").read_text())
    assert committed == json.loads(json.dumps(ALL[name].json())), "run scripts/dashboards"


@pytest.mark.parametrize("name", ALL)
def test_dashboards_are_well_formed(name: str) -> None:
    dashboard = ALL[name].json()
    panels = dashboard["panels"]
    assert dashboard["uid"] == f"stageline-{name}"
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in PANELS
        assert panel["datasource"] == SOURCE
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        assert bool(panel["targets"]) == (panel["type"] != "text")
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


def test_the_datasource_is_provisioned(root: Path) -> None:
    sources = yaml.safe_load((root / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())
    assert [s["uid"] for s in sources["datasources"]] == [SOURCE["uid"]]
    compose = (root / "docker-compose.yml").read_text()
    provider = yaml.safe_load((root / "deploy/grafana/provisioning/dashboards/stageline.yml").read_text())["providers"][
        0
    ]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in compose
    home = re.search(r"GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH: (\S+)", compose)
    assert home is not None
    assert home[1] == f"{provider['options']['path']}/pipeline.json"


def test_rules_do_what_their_tests_say(root: Path, promtool: str) -> None:
    command = [promtool, "test", "rules", "deploy/prometheus/rules_test.yml"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_is_valid(root: Path, promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "config", "deploy/prometheus/prometheus.yml"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test(root: Path) -> None:
    cases = yaml.safe_load((root / "deploy/prometheus/rules_test.yml").read_text())["tests"]
    fired = {alert["alertname"] for case in cases for alert in case.get("alert_rule_test", ()) if alert["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules(root) if "alert" in rule}


@pytest.fixture
def promtool(missing: Any) -> str:
    """The checker, from the distribution's package `prometheus`."""
    return shutil.which("promtool") or missing("no promtool: install the distribution's package prometheus")
