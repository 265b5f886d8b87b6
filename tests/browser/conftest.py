"""A real browser: Chromium, driven by Playwright. Where either is missing tests are skipped, in CI they fail."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-quic --no-first-run --disable-sync"
)


def chromium_program() -> str:
    """The path of Chromium. Skips the test without it or Playwright, which no other test needs; fails in CI."""
    program = shutil.which("chromium")
    if program is None or find_spec("playwright") is None:
        missing = "no chromium and playwright: install the distribution's chromium and the dev dependencies"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    return program


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser."""
    program = chromium_program()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS.split())
        yield chromium
        chromium.close()
