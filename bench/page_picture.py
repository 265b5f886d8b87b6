"""The router's page under load, as a browser shows it."""

import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser

URL = "http://localhost:8000"
WORKLOAD = "closed:users=60,requests=100000,input=512,output=100"
_READY_S = 60.0
_LOOKS_MS = 9_000  # after which figures are those of the load


def draw(chromium: Browser, program: list[str], plan: Path, file: Path) -> None:
    """Draw the page of a plan's live cluster as PNG; port 8000 must be free."""
    up = subprocess.Popen([*program, "up", str(plan), "--dilation", "1"], stdout=subprocess.DEVNULL)
    load: subprocess.Popen[bytes] | None = None
    try:
        _wait(time.monotonic() + _READY_S)
        flags = ["load", "--url", URL, "--workload", WORKLOAD]
        load = subprocess.Popen([*program, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        page = chromium.new_page(viewport={"width": 1120, "height": 800}, color_scheme="light")
        page.goto(URL)
        page.wait_for_timeout(_LOOKS_MS)
        page.screenshot(path=file)
        page.close()
    finally:
        for process in (load, up):
            if process is not None:
                process.send_signal(signal.SIGINT)
                process.wait()


def _wait(until_s: float) -> None:
    """Until the cluster takes requests."""
    while True:
        try:
            with urllib.request.urlopen(f"{URL}/ready"):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)
