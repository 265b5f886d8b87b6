"""The router's page in a real browser: figures come, scripts are let by its own policy, and bad news is shown."""

from typing import Any

import pytest

from tests.browser.conftest import FLAGS, chromium_program
from tests.cluster.live import MODEL, live, live_plan


@pytest.fixture
def program() -> str:
    """Chromium; skipped, or failed in CI, where there is none."""
    return chromium_program()


async def test_the_page_comes_alive(program: str) -> None:
    from playwright.async_api import async_playwright

    async with (
        live(live_plan()) as cluster,
        cluster.client() as client,
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=program, args=FLAGS.split()) as browser,
    ):
        await client.completions.create(model=MODEL, prompt="x", max_tokens=20)
        errors: list[str] = []
        page: Any = await browser.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"{cluster.url}/")
        await page.wait_for_selector(".state.good")
        assert await page.locator(".figure").count() == 7
        assert await page.locator(".stage").count() == 3
        assert "busy" in await page.inner_text("#legend")
        assert cluster.url in await page.inner_text("pre")
        await page.set_viewport_size({"width": 380, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert errors == []
        await cluster.router._service.drained()
        await page.wait_for_selector(".state.bad")
        assert "shutting down" in await page.inner_text("#state")
