"""`stageline up --docker` and its companions, on a small plan and a real daemon."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import msgspec
import pytest

from stageline.cli.main import invoke as run
from stageline.cluster.docker_parts import CLUSTER_LABEL
from stageline.cluster.parts import DONE
from tests.cluster.plans import small_plan
from tests.containers.runs import assert_same_digest

NAME = "stageline-test-up"
LABEL = {"label": f"{CLUSTER_LABEL}={NAME}"}
PARTS = ["router", "stage-00", "stage-01", "stage-02"]
ANY_PORT = ["--grpc-port", "0", "--http-port", "0", "--metrics-port", "0"]
FLAGS = ["--docker", "--detach", "--name", NAME, *ANY_PORT]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of three stages."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_bytes(msgspec.json.encode(small_plan(3)))
    return path


@pytest.fixture(scope="module")
def cluster(engine: docker.DockerClient, image: str, plan: Path) -> Iterator[str]:
    """The cluster's name, once it is up; removed afterwards, and nothing of it is left."""
    run(["down", "--name", NAME])  # of a run that was killed
    try:
        assert run(["up", str(plan), *FLAGS, "--image", image]) == 0
        yield NAME
    finally:
        assert run(["down", "--name", NAME]) == 0
    assert left(engine) == 0


def left(engine: docker.DockerClient) -> int:
    """Containers, networks and volumes with the label."""
    containers = engine.containers.list(all=True, ignore_removed=True, filters=LABEL)
    return len(containers) + len(engine.networks.list(filters=LABEL)) + len(engine.volumes.list(filters=LABEL))


def listed(command: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """What `ps` or `stats` print as JSON."""
    capsys.readouterr()
    assert run([command, "--name", NAME, "--json"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows


def address(engine: docker.DockerClient) -> str:
    """Where the router's gRPC port is published."""
    ports = engine.containers.get(f"{NAME}-router").attrs["NetworkSettings"]["Ports"]["50051/tcp"]
    return f"{ports[0]['HostIp']}:{ports[0]['HostPort']}"


def test_a_run_on_it_is_the_run_in_process(
    cluster: str, engine: docker.DockerClient, plan: Path, tmp_path: Path
) -> None:
    assert_same_digest(plan, address(engine), tmp_path)


def test_up_again_makes_nothing_anew(
    cluster: str, engine: docker.DockerClient, plan: Path, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = listed("ps", capsys)
    assert run(["up", str(plan), *FLAGS, "--image", image]) == 0
    said = capsys.readouterr().out
    assert f"grpc {address(engine)}" in said
    for step in ("next: curl ", "next: stageline load --url http://127.0.0.1:", f"stageline top {address(engine)}"):
        assert step in said, step
    assert [row["part"] for row in before] == PARTS
    assert [row["id"] for row in listed("ps", capsys)] == [row["id"] for row in before]


def test_logs_and_stats_name_every_part(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    used = listed("stats", capsys)
    assert [row["part"] for row in used] == PARTS
    assert all(isinstance(row["memory_bytes"], int) and row["memory_bytes"] > 10e6 for row in used)
    assert run(["logs", "--name", NAME]) == 0
    printed = capsys.readouterr().out
    assert {line.split()[0] for line in printed.splitlines()} == set(PARTS)
    assert run(["logs", "1", "--name", NAME]) == 0
    assert '"grpc"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("breaks", "mends"), [("kill", "restart"), ("stop", "restart"), ("pause", "resume"), ("disconnect", "connect")]
)
def test_a_broken_part_is_mended_and_the_next_run_is_good(
    cluster: str,
    engine: docker.DockerClient,
    plan: Path,
    tmp_path: Path,
    breaks: str,
    mends: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert run(["cluster", breaks, "1", "--name", NAME]) == 0
    assert capsys.readouterr().out == f"stage-01 {DONE[breaks]}\n"
    stage = engine.containers.get(f"{NAME}-stage-01")
    broken = {
        "kill": stage.status == "exited",
        "stop": stage.status == "exited",
        "pause": stage.status == "paused",
        "disconnect": stage.attrs["NetworkSettings"]["Networks"] == {},
    }
    assert broken[breaks]
    assert run(["cluster", mends, "stage-01", "--name", NAME]) == 0
    assert_same_digest(plan, address(engine), tmp_path)


def test_a_part_that_is_not_there_is_named(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "kill", "stage-77", "--name", NAME]) == 2
    assert "no part 'stage-77'; it has router, stage-00, stage-01, stage-02" in capsys.readouterr().err


def test_containers_are_confined(cluster: str, engine: docker.DockerClient) -> None:
    for part in PARTS:
        attributes = engine.containers.get(f"{NAME}-{part}").attrs
        host = attributes["HostConfig"]
        assert attributes["Config"]["User"] == "10001:10001"
        assert (host["ReadonlyRootfs"], host["CapDrop"], host["CapAdd"]) == (True, ["ALL"], None)
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        bound = {binding["HostIp"] for ports in (host["PortBindings"] or {}).values() for binding in ports}
        assert bound == ({"127.0.0.1"} if part == "router" else set())


def test_what_is_not_labelled_is_never_touched(
    engine: docker.DockerClient, image: str, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "stageline-test-stranger"
    stranger = engine.containers.create(image, ["sleep", "60"], name=f"{name}-stage-01")
    try:
        assert run(["up", str(plan), "--docker", "-d", "--name", name, "--image", image, *ANY_PORT]) == 1
        assert "already in use" in capsys.readouterr().err
        assert run(["down", "--name", name]) == 2
        assert [c.name for c in engine.containers.list(all=True, ignore_removed=True, filters={"name": name})] == [
            stranger.name
        ]
        assert engine.networks.list(names=[name]) == []
    finally:
        stranger.remove(force=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_or_crashed_it_leaves_nothing_behind(
    engine: docker.DockerClient, image: str, plan: Path, number: signal.Signals
) -> None:
    name = "stageline-test-foreground"
    command = [sys.executable, "-c", "from stageline.cli.main import main; main()", "up", str(plan)]
    command += ["--docker", "--name", name, "--image", image, *ANY_PORT]
    filters = {"label": f"{CLUSTER_LABEL}={name}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("router ")
            process.send_signal(number)
            process.communicate(timeout=60)
        finally:
            process.kill()
    if number == signal.SIGKILL:
        assert len(engine.containers.list(filters=filters)) == 4
        assert run(["down", "--name", name]) == 0
    else:
        assert process.returncode == 0
    assert engine.containers.list(all=True, ignore_removed=True, filters=filters) == []
    assert engine.networks.list(filters=filters) == []


def test_an_engine_that_does_not_answer_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert run(["up", str(plan), "--docker"]) == 1
    assert capsys.readouterr().err == (
        "stageline: no Docker daemon answers at tcp://127.0.0.1:1 (Connection refused); "
        "start it, or set DOCKER_HOST to one that runs\n"
    )
