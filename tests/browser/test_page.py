"""The report page in a real browser: opens from disk, no error, no network, keyboard alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stageline.report.page.render import write_page
from tests.known import write_run
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
    assert reached >= {"theme", "Whole run", "First trips", "timeline", "queue", "kv", "waterfall", "As a table"}
    assert trouble == []


def test_a_page_without_events(tmp_path: Path, tab: Any, trouble: list[str]) -> None:
    write_run(tmp_path, pipeline([1000] * 59, latency_ns=10, credits_=59), events=False)
    write_page(tmp_path, tmp_path / "report.html")
    visit(tab, tmp_path / "report.html")
    assert "--events" in tab.inner_text("#timeline-note")
    assert tab.locator("#timeline").count() == 0
    assert tab.locator("#occupancy svg > g").count() == 59
    assert trouble == []
