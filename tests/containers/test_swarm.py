"""The stack file on a swarm of one node: it serves a run, and nothing is left of it."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.containers.runs import assert_same_digest

STACK = "stageline-test-stack"
PLAN = "deploy/compose/llama-3.1-70b.json"
LABEL = {"label": f"com.docker.stack.namespace={STACK}"}


def free_port() -> str:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return met


@pytest.fixture
def node(engine: docker.DockerClient) -> Iterator[docker.DockerClient]:
    """This engine as a swarm of one. An engine that is in a swarm already is left alone."""
    if engine.info()["Swarm"]["LocalNodeState"] != "inactive":
        pytest.skip("the daemon is in a swarm already")
    bridges = {network.name for network in engine.networks.list()}
    engine.swarm.init(advertise_addr="127.0.0.1", listen_addr="127.0.0.1:2377")
    try:
        yield engine
    finally:
        engine.swarm.leave(force=True)
        for network in engine.networks.list(names=["docker_gwbridge"]):
            if network.name not in bridges:
                network.remove()


@pytest.fixture
def address(node: docker.DockerClient, image: str, root: Path) -> Iterator[str]:
    """The router of the deployed stack."""
    ports = {name: free_port() for name in ("STAGELINE_PORT", "STAGELINE_HTTP_PORT", "PROMETHEUS_PORT")}
    environ = os.environ | ports | {"STAGELINE_IMAGE": image}
    command = [
        "docker",
        "stack",
        "deploy",
        "--resolve-image",
        "never",
        "--compose-file",
        "deploy/swarm/stack.yml",
        STACK,
    ]
    try:
        done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        yield f"127.0.0.1:{ports['STAGELINE_PORT']}"
    finally:
        subprocess.run(["docker", "stack", "rm", STACK], capture_output=True, check=False)
        assert eventually(lambda: not node.containers.list(all=True, ignore_removed=True, filters=LABEL), 60)
        assert eventually(lambda: not node.networks.list(filters=LABEL), 30)
        for volume in node.volumes.list(filters=LABEL):  # kept by `stack rm`: the history of Prometheus
            volume.remove()


def test_a_stack_serves_a_run(node: docker.DockerClient, address: str, root: Path, tmp_path: Path) -> None:
    def running() -> bool:
        tasks = [service.tasks(filters={"desired-state": "running"}) for service in node.services.list(filters=LABEL)]
        return len(tasks) == 10 and all(any(t["Status"]["State"] == "running" for t in task) for task in tasks)

    assert eventually(running, 120)
    assert_same_digest(root / PLAN, address, tmp_path)
