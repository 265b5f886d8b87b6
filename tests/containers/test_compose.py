"""The compose file: a whole cluster in containers gives the in-process engine's answer, and survives a killed stage."""

import json
import os
import signal
import stat
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.containers.compose import PROJECT, Compose
from tests.containers.runs import assert_same_digest

STAGES = [f"stage-{i:02d}" for i in range(8)]
OURS = ["router", *STAGES]
PLAN = Path("deploy/compose/llama-3.1-70b.json")


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
    assert engine.containers.list(all=True, ignore_removed=True, **label) == []
    assert engine.networks.list(**label) == []
    assert engine.volumes.list(**label) == []


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


def test_a_run_on_containers_is_the_run_in_process(compose: Compose, root: Path, tmp_path: Path) -> None:
    assert_same_digest(root / PLAN, compose.address("router", 50051), tmp_path)


def test_the_door_answers_as_the_model(compose: Compose) -> None:
    asked = {"model": "llama-3.1-70b", "prompt": "How many stages?", "max_tokens": 5, "ignore_eos": True}
    url = f"http://{compose.address('router', 8000)}/v1/completions"
    request = urllib.request.Request(url, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        answer = json.load(reply)
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


def test_the_load_client_of_the_compose_file_is_served(compose: Compose) -> None:
    workload = "poisson:rate=8,input=64,output=8,requests=16"
    printed = compose("run", "--rm", "--no-deps", "load", "--workload", workload, "--json")
    assert json.loads(printed)["calls"]["finished"] == 16


def test_prometheus_finds_every_process_and_its_bubbles(compose: Compose) -> None:
    prometheus = compose.address("prometheus", 9090)
    assert eventually(lambda: sum(int(s["value"][1]) for s in query(prometheus, "up")) == len(OURS), 30)
    assert eventually(lambda: len(query(prometheus, "sum by (stage) (stageline_stage_idle_seconds_total)")) == 8, 30)


def test_a_killed_stage_comes_back_and_the_next_run_is_good(
    compose: Compose, engine: docker.DockerClient, root: Path, tmp_path: Path
) -> None:
    stage = engine.containers.get(f"{PROJECT}-stage-03-1")
    stage.kill("SIGKILL")
    stage.start()
    assert_same_digest(root / PLAN, compose.address("router", 50051), tmp_path)


def test_a_stage_that_dies_by_itself_is_started_again(
    compose: Compose, engine: docker.DockerClient, root: Path, tmp_path: Path
) -> None:
    stage = engine.containers.get(f"{PROJECT}-stage-05-1")
    os.kill(stage.attrs["State"]["Pid"], signal.SIGKILL)  # as the kernel does when memory runs out

    def restarted() -> bool:
        stage.reload()
        return bool(stage.attrs["RestartCount"] == 1 and stage.attrs["State"]["Running"])

    assert eventually(restarted, 30)
    assert_same_digest(root / PLAN, compose.address("router", 50051), tmp_path)


def test_the_command_line_in_a_container_writes_into_the_users_folder(
    compose: Compose, image: str, root: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    os.chown(folder, 1234, 1234)
    user = Compose(root, image.partition(":")[2], STAGELINE_USER="1234:1234")
    command = ["plan", "llama-3.1-8b", "h100-sxm", "-o", "/mine/plan.json"]
    user("run", "--rm", "--no-deps", "--volume", f"{folder}:/mine", "cli", *command)
    written = (folder / "plan.json").stat()
    assert written.st_uid == 1234
    assert stat.S_ISREG(written.st_mode)


def test_prometheus_evaluates_the_rules(compose: Compose) -> None:
    with urllib.request.urlopen(f"http://{compose.address('prometheus', 9090)}/api/v1/rules", timeout=10) as reply:
        groups = json.load(reply)["data"]["groups"]
    assert {group["file"] for group in groups} == {"/etc/prometheus/rules.yml"}


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
