"""Frames of `stageline top` on a real cluster, busy and with a dead stage, drawn by its own renderer."""

import asyncio
import io
import os
import signal
import time
from pathlib import Path

import uvloop
from playwright.sync_api import Browser
from rich.console import Console

from stageline.cli.top_view import render
from stageline.cluster.client_run import run_at
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.engine.settings import Scheduling
from stageline.runtime import metric_names as names
from stageline.runtime.cluster_view import ClusterSamples, View, cluster_samples, view_between
from stageline.runtime.deployment import Deployment
from stageline.runtime.logs import say
from stageline.runtime.plans import read_plan_file
from stageline.testing import Ignoring
from stageline.wire.router_client import RouterClient, RunOrder
from stageline.workload import open_workload

ADDRESS = "router:50051"
COLUMNS = 80
APART_S = 3.0


def draw(chromium: Browser, shown: View, file: Path) -> None:
    """Draw one frame as PNG."""
    out = Console(record=True, file=io.StringIO(), width=COLUMNS, force_terminal=True, color_system="truecolor")
    out.print(render(shown, COLUMNS))
    page = chromium.new_page(viewport={"width": 1000, "height": 700})
    page.set_content(out.export_svg(title=f"stageline top {ADDRESS}"))
    page.locator("svg").first.screenshot(path=file)
    page.close()


def views(path: Path, workload: str, dead: int) -> tuple[View, View]:
    """A plan's cluster with a workload, first with all stages, then with one stopped."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_views(path, workload, dead))


async def _views(path: Path, workload: str, dead: int) -> tuple[View, View]:
    plan = read_plan_file(path)
    served = Deployment(plan)
    order = RunOrder(plan_digest=plan.digest(), scheduling=Scheduling(), seed=0, tokens=False)
    async with (
        LocalCluster(plan, path, LocalOptions(restart=False), say) as servers,
        RouterClient(servers.address) as client,
    ):
        await servers.healthy()
        run = asyncio.create_task(run_at(servers.address, order, open_workload(workload), Ignoring()))
        try:
            before = await _settled(client)
            now = await _later(client, APART_S)
            busy = view_between(ADDRESS, served, now, before)
            stopped = view_between(ADDRESS, served, await _stopped(client, servers.stages[dead].pid or 0, dead), now)
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
    return busy, stopped


async def _later(client: RouterClient, seconds: float) -> ClusterSamples:
    """A ClusterSamples after some wall time."""
    await asyncio.sleep(seconds)
    return cluster_samples(await client.status(metrics=True), time.monotonic())


async def _settled(client: RouterClient) -> ClusterSamples:
    """The first ClusterSamples with a first token."""
    while not (found := await _later(client, APART_S)).router.total(names.TTFT.name + "_count"):
        pass
    return found


async def _stopped(client: RouterClient, pid: int, stage: int) -> ClusterSamples:
    """Stop a stage until a ClusterSamples finds it down, and return that ClusterSamples."""
    os.kill(pid, signal.SIGSTOP)
    try:
        while (found := await _later(client, 0.5)).stages[stage] is not None:
            pass
        return found
    finally:
        os.kill(pid, signal.SIGCONT)
