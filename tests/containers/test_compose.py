"""The compose file: a whole cluster in containers gives the in-process engine's answer, and survives a killed stage."""

import asyncio
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from stageline.runtime.plans import load_plan
from stageline.wire.router_client import RouterClient, RunOrder
from tests.cluster.servers import Seen
from tests.containers.compose import PROJECT, Compose
from tests.reference.sources import ListSource

STAGES = [f"stage-{i:02d}" for i in range(8)]
OURS = ["router", *STAGES]
PLAN = "deploy/compose/llama-3.1-70b.json"
REQUESTS = [
    Request(index=i, arrival_ns=i * 20_000_000, prompt_tokens=100 + 37 * i, output_tokens=4, max_output_tokens=4)
    for i in range(24)
]


@pytest.fixture(scope="module")
def compose(engine: docker.DockerClient, image: str, root: Path) -> Iterator[Compose]:
    """The project up and healthy, without Grafana; afterwards nothing of it is left."""
    project = Compose(root, image.partition(":")[2])
    project("down", "--volumes", "--remove-orphans")
    try:
        project("up", "--detach", "--no-build", "--wait", "--wait-timeout", "120", "prometheus", *OURS)
        yield project
    finally:
        project("down", "--volumes", "--remove-orphans")
    label = {"filters": {"label": f"com.docker.compose.project={PROJECT}"}}
    assert engine.containers.list(all=True, **label) == []
    assert engine.networks.list(**label) == []
    assert engine.volumes.list(**label) == []


@pytest.fixture(scope="module")
def plan(root: Path) -> Plan:
    """The plan that the compose file mounts by default."""
    return load_plan(root / PLAN)


async def run(address: str, plan: Plan) -> tuple[Any, Seen]:
    """The requests on the cluster, once it is healthy."""
    seen = Seen()
    order = RunOrder(plan_digest=plan.digest(), scheduling=Scheduling(), seed=5)
    async with asyncio.timeout(60), RouterClient(address) as client:
        await client.healthy(30)
        totals, _ = await client.run(order, iter(REQUESTS), seen)
    return totals, seen


def agree(address: str, plan: Plan) -> None:
    """The containers and the in-process engine give the same records, accounts and token times."""
    wanted = Seen()
    expected = inprocess.run(plan, Scheduling(), ListSource(REQUESTS), seed=5, observer=wanted)
    totals, seen = asyncio.run(run(address, plan))
    assert totals == expected
    assert sorted(seen.requests, key=lambda r: r.index) == sorted(wanted.requests, key=lambda r: r.index)
    assert sorted(seen.tokens) == sorted(wanted.tokens)


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return met


def query(address: str, expression: str) -> list[dict[str, Any]]:
    """An instant query to Prometheus."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(url, timeout=10) as reply:
        result: list[dict[str, Any]] = json.load(reply)["data"]["result"]
    return result


def test_a_run_on_containers_is_the_run_in_process(compose: Compose, plan: Plan) -> None:
    agree(compose.address("router", 50051), plan)


def test_prometheus_finds_every_process_and_its_bubbles(compose: Compose) -> None:
    prometheus = compose.address("prometheus", 9090)
    assert eventually(lambda: sum(int(s["value"][1]) for s in query(prometheus, "up")) == len(OURS), 30)
    assert eventually(lambda: len(query(prometheus, "sum by (stage) (stageline_stage_idle_seconds_total)")) == 8, 30)


def test_a_killed_stage_comes_back_and_the_next_run_is_good(
    compose: Compose, engine: docker.DockerClient, plan: Plan
) -> None:
    stage = engine.containers.get(f"{PROJECT}-stage-03-1")
    stage.kill("SIGKILL")
    stage.start()
    agree(compose.address("router", 50051), plan)


@pytest.mark.parametrize("service", OURS)
def test_every_container_is_confined(compose: Compose, engine: docker.DockerClient, service: str) -> None:
    attributes = engine.containers.get(f"{PROJECT}-{service}-1").attrs
    host = attributes["HostConfig"]
    assert attributes["Config"]["User"] == "10001:10001"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    published = [binding["HostIp"] for ports in host["PortBindings"].values() for binding in ports]
    assert set(published) <= {"127.0.0.1"}
