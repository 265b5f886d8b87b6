"""The table of idle causes is complete, and every list of causes elsewhere agrees with it."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from deploy.grafana.builder.dashboards import PIPELINE
from stageline.engine.causes import BUBBLES, CAUSES, GAP_CAUSES, NOT_BUBBLES, RECORDED, SHOWN, TABLE
from stageline.engine.types import StageRecord
from stageline.report.advice import advise, cause_advice, run_figures
from stageline.report.compare import compare_runs, read_runs
from stageline.report.distributions import Latency
from stageline.report.page.data import page_data
from stageline.report.page.lanes import CATEGORIES
from stageline.report.page.render import SCRIPTS, asset
from stageline.report.palette import DARK_SERVICES, SERVICES
from stageline.report.rundir import read_run_pools, read_summary
from stageline.report.tuned import OBJECTIVES
from tests.known import write_run
from tests.reference import attribution


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("run")
    write_run(found)
    return found


@pytest.mark.parametrize("cause", TABLE, ids=CAUSES)
def test_every_cause_has_a_meaning_colours_and_advice(cause: Any) -> None:
    assert re.fullmatch("[a-z][a-z_]*", cause.name)
    assert cause.meaning and cause.seen and cause.advice
    assert len(cause.heading or cause.name) <= 8  # of a column
    assert re.fullmatch("#[0-9A-F]{6}", cause.colour) and re.fullmatch("#[0-9A-F]{6}", cause.dark_colour)


def test_no_two_causes_look_alike() -> None:
    for colours in ({c.colour for c in TABLE}, {c.dark_colour for c in TABLE}, {c.heading or c.name for c in TABLE}):
        assert len(colours) == len(TABLE)
    assert not {c.colour for c in TABLE} & {*SERVICES} and not {c.dark_colour for c in TABLE} & {*DARK_SERVICES}


def test_every_cause_is_shown_once() -> None:
    assert len(set(CAUSES)) == len(TABLE)
    assert sorted(SHOWN) == sorted(CAUSES)
    assert sorted((*BUBBLES, *NOT_BUBBLES)) == sorted(CAUSES)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_that_takes_half_of_the_time_gets_its_advice(directory: Path, cause: str) -> None:
    """Many requests at once, and one stage busier than the others: nothing else explains the time."""
    summary = msgspec.structs.replace(
        read_summary(directory), busiest_stage=0, requests_per_s=1e6, e2e_s=Latency(mean=1.0), queue_s=Latency(mean=0.0)
    )
    stages = [waiting(i, cause, 60 if i else 30) for i in range(4)]
    lines = advise(read_run_pools(directory), summary, stages)
    wanted = cause_advice(cause, 0.525, run_figures(summary, stages)).moved_by
    found = [line.seen for line in lines if line.moved_by == wanted]
    assert any("52%" in seen for seen in found)


def waiting(stage: int, cause: str, idle_ns: int) -> StageRecord:
    """A stage that idles with one cause and serves the rest of its window."""
    return StageRecord(
        replica=0, stage=stage, window_ns=100, busy_ns=100 - idle_ns, idle_ns={cause: idle_ns}, kv_peak_bytes=1,
        kv_budget_bytes=10, microbatches=1, visits=1,
    )  # fmt: skip


def test_the_reference_records_the_same_causes() -> None:
    assert attribution.RECORDED == RECORDED


def test_the_rules_name_every_cause(root: Path) -> None:
    rules = (root / "docs/rules.md").read_text()
    assert [cause for cause in CAUSES if f"`{cause}`" not in rules] == []
    assert [cause for cause in GAP_CAUSES if not re.search(rf"\({cause},\s", rules)] == [], "where it ends"


def test_the_page_explains_every_cause(directory: Path) -> None:
    data, _ = page_data(directory)
    assert data.categories == CATEGORIES == ("busy", *SHOWN)
    assert set(data.meanings) == set(CATEGORIES)
    scripts = "\n".join(asset(name) for name in SCRIPTS)
    assert {c for c in CAUSES if re.search(rf"\b{c}\b", without_comments(scripts))} <= {"fill", "drain"}  # no gaps
    own = set(re.findall(r"--([\w-]+):", asset("page.css")))
    assert not own & set(CATEGORIES), "a colour of the page has the name of a cause"


def without_comments(script: str) -> str:
    """JavaScript without its line comments."""
    return re.sub(r"//.*", "", script)


def test_the_dashboard_colours_every_cause() -> None:
    panel = next(p for p in PIPELINE.panels if p.title == "Where the stages' time goes")
    coloured = [override["matcher"]["options"] for override in panel.overrides]
    assert sorted(coloured) == sorted(CATEGORIES)


def test_the_bubble_rule_leaves_out_what_is_no_bubble(root: Path) -> None:
    groups = yaml.safe_load((root / "deploy/prometheus/rules.yml").read_text())["groups"]
    rule = next(
        r["expr"] for group in groups for r in group["rules"] if r.get("record") == "stageline:stage_bubble:ratio"
    )
    matchers = re.findall(r'cause(!?[=~]+)"([^"]*)"', rule)
    assert matchers
    for operator, value in matchers:
        assert operator in ("!=", "!~")
        assert [cause for cause in CAUSES if not re.fullmatch(value, cause)] == [c for c in CAUSES if c in BUBBLES]


def test_the_share_of_bubbles_is_no_goal(root: Path, directory: Path) -> None:
    """It explains: no comparison calls less of it better, no alert waits for it, and tune does not ask for it."""
    comparison = compare_runs(read_runs([directory] * 2))
    shares = [row for row in comparison.rows if row.group == "stages' time"]
    assert {"bubbles", *CAUSES} <= {row.name for row in shares}
    assert {row.better for row in shares} == {0}
    groups = yaml.safe_load((root / "deploy/prometheus/rules.yml").read_text())["groups"]
    alerts = [r for group in groups for r in group["rules"] if "alert" in r]
    assert alerts and not [r["alert"] for r in alerts if re.search("bubble|idle_seconds", str(r["expr"]))]
    assert not [objective for objective in OBJECTIVES if "bubble" in objective]


def test_alerts_about_load_advise_a_command_that_measures(root: Path) -> None:
    """What would help is not known before it was tried: neither replicas, nor another rate, nor another plan."""
    groups = yaml.safe_load((root / "deploy/prometheus/rules.yml").read_text())["groups"]
    actions = {r["alert"]: r["annotations"]["action"] for g in groups for r in g["rules"] if "alert" in r}
    for name in ("StagelineQueueGrows", "StagelineKvNearlyFull"):
        assert "stageline tune DIR" in actions[name]
    guess = re.compile(
        r"\b(add|more|fewer|lower|smaller)\b[^:.]*\b(replicas?|devices?|rate|load|type|microbatch)", re.I
    )
    assert not [name for name, action in actions.items() if guess.search(action)]
