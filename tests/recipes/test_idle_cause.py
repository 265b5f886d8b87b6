"""The recipe for an idle cause: the time on a link that ends more than a second away."""

import shutil
import sys

from tests.recipes.scratch import ROOT, Scratch, named

ROW = """\
    Cause(
        name="distant",
        meaning="on the link to this stage, more than a second away",
        advice="move the stages closer to each other",
        colour="#56B4E9",
        dark_colour="#2A6F97",
        in_gap=True,
        optional=True,
    ),
"""
END = "        end_ns - 1_000_000_000,  # distant\n"
TIMELINE = """\
    split["distant"] = clamp(gap.end_ns - 10**9, left_last_ns, gap.end_ns) - left_last_ns
    split["hop"] -= split["distant"]
"""
STAMPS = '        ("distant", max(gap.prev_end_ns, gap.end_ns - 10**9)),\n'
CASE = """\
def test_the_last_second_on_a_link_is_not_distant() -> None:
    gap = split_gap(1, item(3_000_000_000, 500_000_000, microbatch()), (0, 0))
    assert causes(gap) == {"upstream": 499_999_999, "distant": 1_500_000_000, "hop": 1_000_000_000}


"""
RUN = """\
from pathlib import Path

from stageline.engine.settings import Scheduling
from stageline.report.rundir import read_stages
from tests.known import known_requests, write_run
from tests.property.checks import agrees_with_the_reference
from tests.reference.plans import pipeline
from tests.reference.strategies import Scenario

plan = pipeline((100_000,) * 3, latency_ns=3_000_000_000)
agrees_with_the_reference(Scenario(plan, Scheduling(), (tuple(known_requests()),), (), 0, 0))
write_run(Path("run"), plan)
for record in read_stages(Path("run")):
    assert record.busy_ns + sum(record.idle_ns.values()) == record.window_ns
    assert record.idle_ns["distant"] > 0
"""
WORKLOAD = ("--workload", "poisson:rate=1,requests=5,input=8,output=3")


def test_an_idle_cause(scratch: Scratch) -> None:
    scratch.insert("stageline/engine/causes.py", '    Cause(\n        name="hop",\n', ROW)
    scratch.insert("stageline/engine/attribution.py", "        end_ns,  # hop\n", END)
    scratch.insert("docs/rules.md", "Every idle nanosecond", "`distant`: on a link, more than a second away. ")
    scratch.insert("docs/rules.md", "(hop, b)", "(distant, b - 1 s), ")
    scratch.insert("tests/reference/attribution.py", "    chunk_from_ns = ", TIMELINE)
    scratch.insert("tests/reference/attribution.py", '        ("hop", gap.end_ns),\n', STAMPS)
    scratch.insert("tests/unit/engine/test_stage.py", "def test_stamps_outside_the_gap", CASE)
    scratch.run("scripts/dashboards")
    changed = scratch.changed()
    assert changed <= named("An idle cause")
    assert len(changed) == 6
    shutil.copy(ROOT / "tests/data/digests.jsonl.gz", scratch.root / "tests/data")
    scratch.check(
        "tests/tree/test_causes.py",
        "tests/unit/report/test_text_report.py",
        "tests/unit/cli/test_top_view.py",
        "tests/unit/engine/test_stage.py",
        "tests/integration/deploy/test_dashboards.py",
        "tests/property/test_reference.py",
        "tests/property/test_engine_against_reference.py",
        "-k", "not numbered and not equal_with",
    )  # fmt: skip
    scratch.run("scripts/digests")


def test_a_run_shows_the_new_cause(scratch: Scratch) -> None:
    """Both engines and the reference agree on it; a report, its chart and its page show it."""
    scratch.insert("stageline/engine/causes.py", '    Cause(\n        name="hop",\n', ROW)
    scratch.insert("stageline/engine/attribution.py", "        end_ns,  # hop\n", END)
    scratch.insert("tests/reference/attribution.py", "    chunk_from_ns = ", TIMELINE)
    scratch.run(sys.executable, "-c", RUN)
    text = scratch.stageline("report", "run")
    assert "distant" in text
    for name in ("report.html", "pipeline.svg"):
        assert "more than a second away" in (scratch.root / "run" / name).read_text()
    for engine in ("inprocess", "cluster"):
        scratch.stageline("run", "run/plan.json", *WORKLOAD, "--engine", engine, "-o", engine)
    stages = [(scratch.root / engine / "stages.json").read_bytes() for engine in ("inprocess", "cluster")]
    assert stages[0] == stages[1]
    assert b'"distant"' in stages[0]
