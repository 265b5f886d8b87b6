"""One live cluster under load: the router's page as a browser shows it, and previews of Grafana's dashboards."""

import contextlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import yaml
from playwright.sync_api import Browser

from bench import dashboard_pictures

ROOT = Path(__file__).resolve().parent.parent
DILATION = 4  # so that two busy cores keep up
WORKLOAD = "closed:users=60,requests=100000,input=512,output=40"
LOADED_S = 90.0  # of wall time: what dashboards show
_METRICS = re.compile(r"^(router|stage).* metrics http://(\S+)/metrics")
_LISTENING = re.compile(r"Listening on.* address=(\S+)")
_PATIENCE_S = 60.0


def draw(chromium: Browser, program: list[str], plan: Path, images: Path) -> None:
    """Draw the page and the dashboards of a plan's cluster as PNG."""
    with _up(program, plan) as (url, targets), _prometheus(plan.parent, targets) as prometheus:
        load = [*program, "load", "--url", url, "--workload", WORKLOAD]
        with _process(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            began = time.time()
            page = chromium.new_page(viewport={"width": 1120, "height": 800}, color_scheme="light")
            page.goto(url)
            page.wait_for_timeout(LOADED_S * 1000)
            page.screenshot(path=images / "router-page.png", full_page=True)
            page.close()
            source = dashboard_pictures.Prometheus(prometheus, began, time.time())
            for board in ("pipeline", "cluster", "emulator"):
                dashboard_pictures.draw(board, source, images / f"dashboard-{board}.png")


@contextlib.contextmanager
def _process(command: list[str], **streams: object) -> Iterator[subprocess.Popen[str]]:
    """A process that Ctrl-C ends."""
    with subprocess.Popen(command, text=True, **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


@contextlib.contextmanager
def _up(program: list[str], plan: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """The door of a healthy cluster, and what Prometheus scrapes by job."""
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    command = [*program, "up", str(plan), "--dilation", str(DILATION), *ports]
    targets: dict[str, list[str]] = {"router": [], "stage": []}
    with _process(command, stdout=subprocess.PIPE) as up:
        url = ""
        assert up.stdout is not None
        for line in up.stdout:
            if found := _METRICS.match(line):
                targets[found[1]].append(found[2])
            if line.startswith("api "):
                url = line.split()[1].removesuffix("/v1")
            if "are healthy" in line:
                break
        yield url, targets


@contextlib.contextmanager
def _prometheus(folder: Path, targets: dict[str, list[str]]) -> Iterator[str]:
    """Its address, once it listens: the committed rules, a scrape a second."""
    jobs = [{"job_name": job, "static_configs": [{"targets": where}]} for job, where in targets.items()]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    rules = [str(ROOT / "deploy/prometheus/rules.yml")]
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump({"global": every, "rule_files": rules, "scrape_configs": jobs}))
    program = shutil.which("prometheus")
    assert program, "the dashboards need the program prometheus"
    flags = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", "--web.listen-address=127.0.0.1:0"]
    log = folder / "prometheus.log"
    with log.open("w") as output, _process([program, *flags], stdout=output, stderr=output):
        end = time.monotonic() + _PATIENCE_S
        while not (found := _LISTENING.search(log.read_text())):
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield f"http://{found[1]}"
