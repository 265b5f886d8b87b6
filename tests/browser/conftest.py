"""A real browser: Chromium, driven by Playwright. Where either is missing tests are skipped, in CI they fail."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-quic --no-first-run --disable-sync"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser; Playwright is no dependency of the project's other tests."""
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        missing = "no chromium and playwright: install the distribution's chromium and the dev dependencies"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS.split())
        yield chromium
        chromium.close()
