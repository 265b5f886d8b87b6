"""Makes the pictures in docs/images from real runs: `scripts/pictures`. Needs the programs chromium and prometheus.

pipeline.svg, for the README, shows Kimi K3 on 59 wafers with the sample trace. The screenshots are for docs/seeing.md.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from bench import page_picture, top_pictures

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs/images"
STAGELINE = [sys.executable, "-c", "from stageline.cli.main import main; main()"]
FLAGS = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-quic --no-first-run"
K3 = "kimi-k3 wse-3t --placement by-kind --layer-bytes nominal"
TOPS = ((8, "llama.json", 3), (59, "k3.json", 20))  # stages, plan, the stage that dies
WORKLOAD = "poisson:rate=1000,requests=100000,input=2000,output=100"
LLAMA = "llama-3.1-70b h100-sxm --devices 8"
BURST = "closed:users=480,requests=960,input=uniform(8,24),output=48"  # of docs/tutorial.md, and the two runs below
TODAY = "poisson:rate=12,requests=400,input=1024,output=128"
COLOURS = 255  # of a picture: less than half of the bytes


def stageline(work: Path, command: str) -> None:
    """Run one command in the working folder."""
    subprocess.run([*STAGELINE, *command.split()], cwd=work, env={"PYTHONPATH": str(ROOT)}, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip


@contextmanager
def browser() -> Iterator[Browser]:
    """The distribution's chromium."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS.split())
        try:
            yield chromium
        finally:
            chromium.close()


def plans(work: Path) -> None:
    """Make the plans of 59 and of eight stages."""
    stageline(work, f"plan {K3} -o k3.json")
    stageline(work, f"plan {LLAMA} -o llama.json")


def runs(work: Path) -> None:
    """Make the runs that the pictures show."""
    plans(work)
    trace = "sample_azure.csv"
    shutil.copy(ROOT / "examples/traces" / trace, work)  # so that the page shows a command without a path
    stageline(work, f"run k3.json --workload {trace} --requests 60 --rate-scale 20 --measure-window all --events -o k3")
    workload = "--workload poisson:rate=20,input=1024,output=128 --requests 300 --measure-window all"
    stageline(work, f"run llama.json {workload} --events -o llama")
    stageline(work, f"run llama.json {workload} --credits 16 --batched-tokens 512 -o llama-16-credits")
    stageline(work, "report k3")
    stageline(work, "report llama --no-chart")
    stageline(work, "compare llama llama-16-credits --html compare.html")
    shutil.copy(ROOT / "deploy/compose/llama-3.1-70b.json", work / "compose.json")
    stageline(work, f"run compose.json --workload {BURST} --serving-engine vllm-v1 --events -o natural")
    stageline(work, "report natural --no-chart")
    stageline(work, "plan llama-3.1-8b h100-sxm --max-model-len 8192 --max-num-seqs 256 -o today.json")
    stageline(work, f"run today.json --workload {TODAY} --slo ttft=500ms,tpot=20ms --price 2.5"
                    " --measure-window auto -o today")  # fmt: skip
    stageline(work, "tune today")
    stageline(work, "report today --sheet")


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


def shoot_part(page: Page, file: Path, selector: str, name: str) -> None:
    """Take a screenshot of one element of a page."""
    page.goto(file.as_uri())
    page.wait_for_load_state()
    page.wait_for_timeout(300)
    page.locator(selector).first.screenshot(path=IMAGES / f"{name}.png")


def shrink(folder: Path) -> None:
    """Store every PNG with few colours; what they show has few, but for the dashboards."""
    for path in folder.glob("[!d]*.png"):
        with Image.open(path) as picture:
            few = picture.convert("RGB").quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def reports(work: Path) -> None:
    """Draw runs: report pages, a comparison, a sheet, the chart of the README."""
    runs(work)
    shutil.copy(work / "k3/pipeline.svg", IMAGES / "pipeline.svg")
    with browser() as chromium:
        draw_reports(chromium, work)


def draw_reports(chromium: Browser, work: Path) -> None:
    """Take the screenshots of the runs."""
    light = chromium.new_page(viewport={"width": 1120, "height": 800}, color_scheme="light")
    dark = chromium.new_page(viewport={"width": 1120, "height": 800}, color_scheme="dark")
    shoot(light, work / "k3/report.html", "report-59-stages", ("[data-view=first]",))
    keys = ("ArrowDown", "ArrowDown", "n", "n")
    shoot(dark, work / "llama/report.html", "report-8-stages", ("[data-view=middle]",), keys)
    shoot(light, work / "compare.html", "compare")
    shoot_part(light, work / "natural/report.html", "#timeline-section", "report-groups")
    shoot_part(light, work / "today/sheet.html", "body", "sheet")


def tops(work: Path) -> None:
    """Draw frames of `stageline top`."""
    plans(work)
    seen = {stages: top_pictures.views(work / plan, WORKLOAD, dead) for stages, plan, dead in TOPS}
    with browser() as chromium:  # its event loop bears no other one
        for stages, (busy, stopped) in seen.items():
            top_pictures.draw(chromium, busy, IMAGES / f"top-{stages}-stages.png")
            top_pictures.draw(chromium, stopped, IMAGES / f"top-{stages}-stages-dead.png")


def live(work: Path) -> None:
    """Draw a live cluster: the router's page, and previews of the dashboards."""
    plan = work / "plan.json"
    shutil.copy(ROOT / "deploy/compose/llama-3.1-70b.json", plan)
    with browser() as chromium:
        page_picture.draw(chromium, STAGELINE, plan, IMAGES)


def main() -> None:
    """Make all pictures in docs/images, or those of the kinds that the command names."""
    kinds = {"reports": reports, "tops": tops, "live": live}
    IMAGES.mkdir(exist_ok=True)
    for kind in sys.argv[1:] or kinds:
        with tempfile.TemporaryDirectory() as folder:
            kinds[kind](Path(folder))
    shrink(IMAGES)


if __name__ == "__main__":
    main()
