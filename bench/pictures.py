"""Makes the pictures in docs/images from real runs: `scripts/pictures`. Needs the distribution's chromium.

pipeline.svg, for the README, shows Kimi K3 on 59 wafers with the sample trace. The screenshots are for docs/seeing.md.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from bench import page_picture, top_pictures
from stageline.runtime.cluster_view import View

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs/images"
STAGELINE = [sys.executable, "-c", "from stageline.cli.main import main; main()"]
FLAGS = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-quic --no-first-run"
K3 = "kimi-k3 wse-3t --placement by-kind --layer-bytes nominal"
TOPS = ((8, "llama.json", 3), (59, "k3.json", 20))  # stages, plan, the stage that dies
WORKLOAD = "poisson:rate=1000,requests=2000,input=2000,output=100"
LLAMA = "llama-3.1-70b h100-sxm --devices 8"


def stageline(work: Path, command: str) -> None:
    """Run one command in the working folder."""
    subprocess.run([*STAGELINE, *command.split()], cwd=work, env={"PYTHONPATH": str(ROOT)}, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip


def runs(work: Path) -> None:
    """Make the runs that the pictures show."""
    trace = "sample_azure.csv"
    shutil.copy(ROOT / "examples/traces" / trace, work)  # so that the page shows a command without a path
    stageline(work, f"plan {K3} -o k3.json")
    stageline(work, f"plan {LLAMA} -o llama.json")
    stageline(work, f"run k3.json --workload {trace} --requests 60 --rate-scale 20 --events -o k3")
    workload = "--workload poisson:rate=20,input=1024,output=128 --requests 300"
    stageline(work, f"run llama.json {workload} --events -o llama")
    stageline(work, f"run llama.json {workload} --credits 16 --batched-tokens 512 -o llama-16-credits")
    stageline(work, "report k3")
    stageline(work, "report llama --no-chart")
    stageline(work, "compare llama llama-16-credits --html compare.html")


def shoot(page: Page, file: Path, name: str, clicks: tuple[str, ...] = (), keys: tuple[str, ...] = ()) -> None:
    """Take one screenshot of a full page, after some clicks and keys."""
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    for selector in clicks:
        page.click(selector)
    if keys:
        page.focus("#timeline")
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_timeout(300)
    page.screenshot(path=IMAGES / f"{name}.png", full_page=True)


def main() -> None:
    """Make all pictures in docs/images."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        runs(work)
        tops = {n: top_pictures.views(work / plan, WORKLOAD, dead) for n, plan, dead in TOPS}
        pictures(work, tops)


def pictures(work: Path, tops: dict[int, tuple[View, View]]) -> None:
    """Draw the runs and the frames of `stageline top`."""
    with sync_playwright() as playwright:
        shutil.copy(work / "k3/pipeline.svg", IMAGES / "pipeline.svg")
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS.split())
        light = chromium.new_page(viewport={"width": 1120, "height": 800}, color_scheme="light")
        dark = chromium.new_page(viewport={"width": 1120, "height": 800}, color_scheme="dark")
        shoot(light, work / "k3/report.html", "report-59-stages", ("[data-view=first]",))
        keys = ("ArrowDown", "ArrowDown", "n", "n")
        shoot(dark, work / "llama/report.html", "report-8-stages", ("[data-view=middle]",), keys)
        shoot(light, work / "compare.html", "compare")
        for stages, (busy, stopped) in tops.items():
            top_pictures.draw(chromium, busy, IMAGES / f"top-{stages}-stages.png")
            top_pictures.draw(chromium, stopped, IMAGES / f"top-{stages}-stages-dead.png")
        page_picture.draw(chromium, STAGELINE, work / "llama.json", IMAGES / "router-page.png")
        chromium.close()


if __name__ == "__main__":
    main()
