"""The report page in a real browser: opens from disk, no error, no network, keyboard alone."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stageline
from stageline.engine.fleet import Fleet, HandOver
from stageline.engine.types import Request
from stageline.report.events import Gap, Served
from stageline.report.page.render import write_page
from stageline.report.page.sheet import write_sheet
from stageline.report.rundir import read_events, read_stages
from tests.known import SLOW, TIGHT, known_fleet, write_run
from tests.reference.plans import pipeline


@pytest.fixture
def trouble() -> list[str]:
    """What the browser complained about."""
    return []


@pytest.fixture(params=["light", "dark"])
def tab(browser: Any, request: pytest.FixtureRequest, trouble: list[str]) -> Iterator[Any]:
    """An empty tab; `trouble` collects errors, warnings and requests that leave the page."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=request.param)
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda sent: trouble.append(sent.url) if not sent.url.startswith(("file:", "data:")) else None)
    yield page
    page.close()


def visit(tab: Any, path: Path) -> None:
    """Opens a page and waits until it is drawn."""
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready=yes]", state="attached")


def test_no_trouble_and_all_by_keyboard(tmp_path: Path, tab: Any, trouble: list[str]) -> None:
    write_run(tmp_path)
    write_page(tmp_path, tmp_path / "report.html")
    visit(tab, tmp_path / "report.html")
    whole = tab.inner_text("#range")
    tab.focus("#timeline")
    for key in ("+", "+", "ArrowRight"):
        tab.keyboard.press(key)
    tab.wait_for_function("text => document.getElementById('range').textContent !== text", arg=whole)
    tab.keyboard.press("ArrowDown")
    first = tab.inner_text("#details")
    assert first.startswith("Stage 0 (stage-0): microbatch ")
    tab.keyboard.press("ArrowDown")
    assert tab.inner_text("#details").startswith("Stage 1 ")
    tab.keyboard.press("n")
    tab.keyboard.press("Home")
    tab.wait_for_function("text => document.getElementById('range').textContent === text", arg=whole)
    assert trouble == []


def test_every_control_can_be_reached(tmp_path: Path, tab: Any, trouble: list[str]) -> None:
    write_run(tmp_path)
    write_page(tmp_path, tmp_path / "report.html")
    visit(tab, tmp_path / "report.html")
    reached = set()
    for _ in range(20):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert reached >= {"theme", "Whole run", "First microbatches", "timeline", "queue", "kv", "waterfall", "As a table"}
    assert trouble == []


def test_a_page_without_events(tmp_path: Path, tab: Any, trouble: list[str]) -> None:
    write_run(tmp_path, pipeline([1000] * 59, latency_ns=10, credits_=59), events=False)
    write_page(tmp_path, tmp_path / "report.html")
    visit(tab, tmp_path / "report.html")
    assert "--events" in tab.inner_text("#timeline-note")
    assert tab.locator("#timeline").count() == 0
    assert tab.locator("#occupancy svg > g").count() == 59
    assert trouble == []


def test_a_fleet_is_told_by_its_pools(tmp_path: Path, tab: Any, trouble: list[str]) -> None:
    workload = "constant:rate=400,requests=12,input=16,output=12"
    run = stageline.run(known_fleet(), workload, output=tmp_path, events=True)
    assert run.summary.hand_over is None
    write_page(tmp_path, tmp_path / "report.html")
    visit(tab, tmp_path / "report.html")
    tab.focus("#timeline")
    for _ in range(6):
        tab.keyboard.press("ArrowDown")
    assert tab.inner_text("#details").startswith("Stage short-0/1 (stage-1): microbatch ")
    rows = tab.locator("#pools tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == [pool.label for pool in run.summary.pools]
    assert "busiest stage long/2" in tab.inner_text("#cards")
    assert trouble == []


def test_a_request_is_drawn_on_its_way_through_pools(tmp_path: Path, tab: Any, trouble: list[str]) -> None:
    long, short = known_fleet().pools
    pools = tuple(msgspec.structs.replace(p, role=role) for p, role in ((short, "prefill"), (long, "decode")))
    fleet = Fleet(pools=pools, hand_over=HandOver(bytes_per_s=10**6))
    stageline.run(fleet, "constant:rate=400,requests=6,input=16,output=8", output=tmp_path, events=True)
    write_page(tmp_path, tmp_path / "report.html")
    visit(tab, tmp_path / "report.html")
    assert "KV on its way" in tab.inner_text("#waterfall-title")
    assert "ingress" in tab.inner_text("#pools")
    tab.locator("#waterfall").scroll_into_view_if_needed()
    tab.hover("#waterfall", position={"x": 120, "y": 6})
    assert re.search(r"KV sent after .*, usable on long-0 after ", tab.inner_text("#tip"))
    assert trouble == []


_UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def ns(text: str) -> float:
    """A duration as the page writes it."""
    value, unit = text.split()
    return float(value) * _UNITS[unit.replace("µ", "u")]


def test_the_timeline_tells_every_service_and_gap_of_the_event_log(
    tmp_path: Path, tab: Any, trouble: list[str]
) -> None:
    """Read as a user reads it, stepping through a stage by keyboard."""
    write_run(tmp_path)
    write_page(tmp_path, tmp_path / "report.html")
    visit(tab, tmp_path / "report.html")
    events = [e for e in read_events(tmp_path) if e.stage == TIGHT]
    services = [e for e in events if isinstance(e, Served)]
    gaps = {e.start_ns + sum(e.idle_ns.values()): e.idle_ns for e in events if isinstance(e, Gap)}
    tab.click("[data-view=first]")
    tab.focus("#timeline")
    for _ in range(TIGHT + 1):
        tab.keyboard.press("ArrowDown")
    for _ in services:
        tab.keyboard.press("p")
    told = Counter[str]()
    for service in services:
        text = tab.inner_text("#details")
        assert text.startswith(f"Stage {TIGHT} (stage-{TIGHT}): microbatch {service.number}, served at ")
        assert ns(re.search(r" for ([\d.,]+ \S+?)[,.]? ", text)[1]) == pytest.approx(service.end_ns - service.start_ns)
        idle = dict(
            piece.split(" ", 1) for piece in text.partition("Idle before it: ")[2].rstrip(".").split(", ") if piece
        )
        wanted = gaps.get(service.start_ns, {})
        if service is not services[0]:  # what lies before it is the fill, no gap of the log
            assert {cause: ns(text) for cause, text in idle.items()} == pytest.approx(wanted, rel=0.01)
            told.update(wanted)
        tab.keyboard.press("n")
    record = read_stages(tmp_path)[TIGHT]
    assert told == {cause: ns for cause, ns in record.idle_ns.items() if ns and cause not in ("fill", "drain")}
    assert trouble == []


def test_the_table_of_stages_and_the_advice(tmp_path: Path, tab: Any) -> None:
    write_run(tmp_path)
    write_page(tmp_path, tmp_path / "report.html")
    visit(tab, tmp_path / "report.html")
    tab.click("text=As a table")
    heads = tab.locator("#stage-table thead th").all_inner_texts()
    for index, record in enumerate(read_stages(tmp_path)):
        row = tab.locator(f"#stage-table tbody tr >> nth={index} >> td").all_inner_texts()
        cells = dict(zip(heads, row, strict=True))
        for cause, spent_ns in {"busy": record.busy_ns, **record.idle_ns}.items():
            if f"{cause} %" in cells:
                assert float(cells[f"{cause} %"]) == pytest.approx(100 * spent_ns / record.window_ns, abs=0.006)
            else:
                assert not spent_ns
    shown = tab.inner_text("main")
    assert f"busiest stage {SLOW}" in shown
    assert f"stage {TIGHT} binds" in shown


def test_a_long_run_of_many_stages_opens_at_once(tmp_path: Path, tab: Any, trouble: list[str]) -> None:
    """150,000 events; counted is the CPU of the page's thread, so that a busy host does not matter."""
    requests = [
        Request(index=i, arrival_ns=100 * i, prompt_tokens=64, output_tokens=64, max_output_tokens=64)
        for i in range(20)
    ]
    plan = pipeline([1_000 + 7 * s for s in range(59)], latency_ns=500, credits_=59)
    write_run(tmp_path, plan, requests)
    write_page(tmp_path, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    visit(tab, tmp_path / "report.html")
    spent = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    assert 0 < spent["ThreadTime"] < 3
    tab.click("[data-view=first]")
    tab.locator("#range", has_text="every service").wait_for()
    assert trouble == []


def test_a_sheet_with_much_to_say_prints_on_one_page(tab: Any, trouble: list[str], tmp_path: Path) -> None:
    """Two replicas, three bounds, a remark, a price, a tuning and a long workload: nothing is cut on any side."""
    plan = stageline.plan_model("llama-3.1-70b", "h100-sxm", devices=14, stages=14, replicas=2, weights="fp8")
    load = "poisson:rate=40,requests=48,input=uniform(400,3000),output=uniform(16,48)"
    slo = "ttft=500ms,tpot=20ms,e2e=5s,attainment=0.995"
    stageline.run(plan, load, slo=slo, price=2.5, measure_window="auto", output=tmp_path / "run")
    stageline.tune(tmp_path / "run", budget=6)
    write_sheet(tmp_path / "run", tmp_path / "sheet.html")
    tab.goto((tmp_path / "sheet.html").as_uri())
    assert trouble == []
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert len(re.findall(rb"/Type\s*/Page\b", tab.pdf(prefer_css_page_size=True))) == 1


def test_the_sheet_prints_on_one_page(tab: Any, trouble: list[str], tmp_path: Path) -> None:
    """Even of 59 stages; nothing runs out of the page to the right."""
    write_run(tmp_path, pipeline((100_000,) * 59))
    write_sheet(tmp_path, tmp_path / "sheet.html")
    tab.goto((tmp_path / "sheet.html").as_uri())
    assert trouble == []
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert len(re.findall(rb"/Type\s*/Page\b", tab.pdf(prefer_css_page_size=True))) == 1
