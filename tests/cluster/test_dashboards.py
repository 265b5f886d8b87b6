"""Every query of every dashboard and rule, against a real Prometheus that scrapes a cluster under load."""

import asyncio
import json
import os
import re
import shutil
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import ClientSession

from router.server import build as build_router
from router.settings import RouterSettings
from stage_server.server import build as build_stage
from stage_server.settings import StageSettings
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from stageline.runtime.deployment import Deployment, Document
from stageline.runtime.server import Server
from stageline.testing import Recorder
from stageline.wire.router_client import RouterClient, RunOrder
from tests.cluster.live import handing_over
from tests.integration.deploy.test_dashboards import expressions
from tests.known import known_plan

LOCAL = {"grpc_host": "127.0.0.1", "grpc_port": 0, "metrics_port": 0, "drain_s": 0}
_LISTENING = re.compile(r"Listening on.* address=(\S+)")
PATIENCE_S = 60
HAND_OVERS = "fleet: "  # the dashboard of what a plan alone does not do
SILENT = {  # what an unhurt cluster without live clients has nothing to say about
    "cluster: Preemptions and prefix cache",  # 0/0 without a prefix cache
    "emulator: Dilation",
    "emulator: Clock slip",
    "emulator: Lost sessions",
    "emulator: Done again",
    "emulator: Lateness of tokens",
    HAND_OVERS,
}


def loaded_plan() -> Plan:
    """The known plan, with bytes on its links."""
    plan = known_plan()
    links = tuple(msgspec.structs.replace(link, bytes_per_token=10) for link in plan.links)
    return msgspec.structs.replace(plan, links=links)


@asynccontextmanager
async def started(server: Server) -> AsyncIterator[tuple[str, str]]:
    """A server's gRPC and metrics addresses."""
    endpoints = await server.start()
    await server.set_serving(True)
    try:
        yield endpoints.grpc, endpoints.metrics
    finally:
        await server.stop(0)


@asynccontextmanager
async def cluster(folder: Path, document: Document) -> AsyncIterator[tuple[str, dict[str, list[str]]]]:
    """The router's address, and what Prometheus scrapes by job."""
    (folder / "plan.json").write_bytes(document.canonical())
    async with AsyncExitStack() as stack:
        stages = [
            await stack.enter_async_context(started(build_stage(StageSettings(stage=stage, replica=replica, **LOCAL))))
            for replica, stage in Deployment(document).stages
        ]
        settings = RouterSettings(
            plan=str(folder / "plan.json"), stages=",".join(grpc for grpc, _ in stages), live=False, **LOCAL
        )
        address, metrics = await stack.enter_async_context(started(build_router(settings)))
        yield address, {"router": [metrics], "stage": [metrics for _, metrics in stages]}


@asynccontextmanager
async def prometheus(folder: Path, root: Path, targets: dict[str, list[str]], program: str) -> AsyncIterator[str]:
    """Its address, once it answers. The committed rules, two scrapes a second."""
    jobs = [{"job_name": job, "static_configs": [{"targets": where}]} for job, where in targets.items()]
    every = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    config = {"global": every, "rule_files": [str(root / "deploy/prometheus/rules.yml")], "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0", "--log.level=info", stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield await _address(folder / "log")
    finally:
        process.kill()
        await process.wait()


async def _address(log: Path) -> str:
    """Prometheus says where it listens."""
    async with asyncio.timeout(20):
        while True:
            if found := _LISTENING.search(_text(log)):
                return f"http://{found[1]}"
            await asyncio.sleep(0.05)


def _text(path: Path) -> str:
    return path.read_text()


async def load(address: str, document: Document, until: asyncio.Event) -> None:
    """One run after the other: tight KV and a queue, so that every counter moves."""
    requests = [
        Request(index=i, arrival_ns=i * 400_000, prompt_tokens=16, output_tokens=12, max_output_tokens=12)
        for i in range(400)
    ]
    async with RouterClient(address) as client:
        await client.healthy(20)
        while not until.is_set():
            scheduling = Scheduling() if isinstance(document, Plan) else None
            order = RunOrder(plan_digest=document.digest(), scheduling=scheduling, seed=0)
            await client.run(order, iter(requests), Recorder())


async def series(session: ClientSession, address: str, expr: str) -> list[Any]:
    """What an instant query returns."""
    async with session.get(f"{address}/api/v1/query?query={urllib.parse.quote(expr)}") as reply:
        answer = json.loads(await reply.text())
    assert answer["status"] == "success", (expr, answer)
    found: list[Any] = answer["data"]["result"]
    return found


async def empty_queries(address: str) -> list[str]:
    """The places of queries that return nothing."""
    async with ClientSession() as session:
        return [f"{place}: {expr}" for place, expr in expressions() if not await series(session, address, expr)]


def told_by_a_plan(query: str) -> bool:
    return not query.startswith(tuple(SILENT))


def told_by_a_fleet(query: str) -> bool:
    return query.startswith(HAND_OVERS)


@pytest.mark.parametrize(
    ("document", "told"),
    [(loaded_plan(), told_by_a_plan), (handing_over("source-first"), told_by_a_fleet)],
    ids=["plan", "fleet"],
)
async def test_every_query_returns_series(
    document: Document, told: Callable[[str], bool], tmp_path: Path, root: Path
) -> None:
    program = shutil.which("prometheus")
    if program is None:
        missing = "no prometheus: install the distribution's package"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    enough = asyncio.Event()
    async with cluster(tmp_path, document) as (router, targets):
        working = asyncio.create_task(load(router, document, enough))
        async with prometheus(tmp_path, root, targets, program) as address:
            wanted, deadline_s = ["everything"], time.monotonic() + PATIENCE_S
            while wanted and not working.done() and time.monotonic() < deadline_s:
                await asyncio.sleep(0.5)
                wanted = [query for query in await empty_queries(address) if told(query)]
        enough.set()
        working.cancel()
        await asyncio.wait([working])
    assert wanted == []
