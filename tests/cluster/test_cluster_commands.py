"""`stageline ps|logs|stats|down|cluster ...` on clusters of real local processes."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run
from tests.cluster.live import live_plan
from tests.cluster.test_processes import children_of, is_running

PROGRAM = [sys.executable, "-c", "from stageline.cli.main import main; main()"]
PORTS = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
WITHIN_S = 30.0


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster but those of this test is found."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")


class Up:
    """`stageline up` with three stages."""

    def __init__(self, folder: Path, *flags: str) -> None:
        plan = folder / "plan.json"
        plan.write_bytes(live_plan(3).canonical())
        command = [*PROGRAM, "up", str(plan), "--dilation", "100", *PORTS, *flags]
        self.errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        assert self.process.stdout is not None
        self.url = ""
        for line in self.process.stdout:
            if line.startswith("api "):
                self.url = line.split()[1].removesuffix("/v1")
            if "are healthy" in line:
                return

    def said(self) -> str:
        """What it has written to stderr."""
        self.errors.seek(0)
        return self.errors.read()

    def ready(self) -> bool:
        """Whether its door takes requests."""
        try:
            with urllib.request.urlopen(f"{self.url}/ready") as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture
def up(tmp_path: Path, alone: None) -> Iterator[Up]:
    started = Up(tmp_path)
    try:
        yield started
    finally:
        started.process.send_signal(signal.SIGINT)
        started.process.wait()
        assert started.process.stdout is not None
        started.process.stdout.close()
        started.errors.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def rows(capsys: pytest.CaptureFixture[str], command: str = "ps") -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert run([command, "--json"]) == 0
    return {row["part"]: row for row in json.loads(capsys.readouterr().out)}


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) != 0
    return capsys.readouterr().err


def test_a_part_is_held_down_until_it_is_released(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "kill", "1"]) == 0
    assert capsys.readouterr().out == "stage-01 killed\n"
    os.kill(int(str(rows(capsys)["stage-02"]["pid"])), signal.SIGKILL)  # a crash: that one comes back

    def back() -> bool:
        row = rows(capsys)["stage-02"]
        return (row["status"], row["restarts"]) == ("running", 1)

    until(back)
    held = rows(capsys)["stage-01"]
    assert (held["status"], held["restarts"], held["pid"]) == ("exited", 0, 0)
    assert not up.ready()
    assert "stage-01 is down; start it with stageline cluster restart stage-01" in refused(
        capsys, "cluster", "pause", "1"
    )
    assert run(["cluster", "restart", "stage-01"]) == 0
    assert rows(capsys)["stage-01"]["status"] == "running"
    until(up.ready)
    assert "stage-01 was killed on request and stays down" in up.said()
    assert "stage-1) ended with" not in up.said()


def test_pauses_logs_and_stats_and_the_end(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    children = children_of(up.process.pid)
    assert run(["cluster", "pause", "stage-00"]) == 0
    assert rows(capsys)["stage-00"]["status"] == "paused"
    assert "stage-00 is already paused" in refused(capsys, "cluster", "pause", "0")
    assert run(["cluster", "resume", "0"]) == 0
    assert "stage-00 is not paused" in refused(capsys, "cluster", "resume", "0")
    assert run(["cluster", "stop", "router"]) == 0
    assert not up.ready()
    assert run(["cluster", "restart", "router"]) == 0
    until(up.ready)
    assert rows(capsys)["router"]["restarts"] == 0
    assert list(rows(capsys, "stats")) == ["router", "stage-00", "stage-01", "stage-02"]
    assert run(["logs"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(rows(capsys))
    assert run(["logs", "router"]) == 0
    assert capsys.readouterr().out.count('"grpc"') == 2
    assert "needs containers" in refused(capsys, "cluster", "disconnect", "1")
    assert "no part '7'; it has router, stage-00, stage-01, stage-02" in refused(capsys, "cluster", "kill", "7")
    capsys.readouterr()
    assert run(["down"]) == 0
    assert capsys.readouterr().out == "removed 4 processes of cluster 'local'\n"
    assert not [pid for pid in children if is_running(pid)]
    assert up.process.wait() == 0
    assert "no local cluster runs here, and no Docker daemon" in refused(capsys, "ps")


def test_two_clusters_are_told_apart_by_name(up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two").mkdir()
    other = Up(tmp_path / "two", "--name", "two")
    assert "2 clusters run here: 'local' (local processes), 'two' (local processes)" in refused(capsys, "ps")
    assert "no local cluster 'three' runs here; there is 'local' (local processes), 'two' (local processes)" in refused(
        capsys, "cluster", "kill", "1", "--name", "three"
    )
    assert run(["cluster", "kill", "1", "--name", "two"]) == 0
    assert run(["down", "--name", "two"]) == 0
    assert other.process.wait() == 0
    assert other.process.stdout is not None
    other.process.stdout.close()
    other.errors.close()
    assert rows(capsys)["stage-01"]["status"] == "running"


def test_a_name_in_use_is_refused_before_anything_starts(
    up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "up", str(tmp_path / "plan.json"), "--name", "local", *PORTS)
    assert "a cluster 'local' runs already; end it with stageline down --name local" in said
