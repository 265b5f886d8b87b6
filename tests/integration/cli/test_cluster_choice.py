"""Which cluster a command means, where Docker is absent, hangs, answers badly, or has clusters itself."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stageline.cli.cluster import _reached
from stageline.cli.main import invoke as run
from stageline.cluster import sockets
from stageline.cluster.docker_parts import CLUSTER_LABEL
from stageline.errors import Unavailable

VERSION = {"ApiVersion": "1.41"}
LISTS: dict[str, object] = {"containers": [], "networks": [], "volumes": {"Volumes": None}}
LEFT = LISTS | {"networks": [{"Labels": {CLUSTER_LABEL: "boxed"}}]}


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of this test's own, and little patience with Docker."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("stageline.cli.cluster._LOOK_S", 0.2)


@contextmanager
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A daemon that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        yield listener


@contextmanager
def daemon(monkeypatch: pytest.MonkeyPatch, status: int, answers: Mapping[str, object] | str) -> Iterator[None]:
    """A daemon that answers with one text, or by the path."""

    class Handler(BaseHTTPRequestHandler):
        """See `daemon`."""

        def do_GET(self) -> None:
            """One answer."""
            what = self.path.partition("?")[0].split("/")
            found = next((answers[part] for part in what if part in answers), VERSION) if answers is not text else text
            body = (found if isinstance(found, str) else json.dumps(found)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    text = answers if isinstance(answers, str) else ""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_docker_is_not_asked_for_a_local_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent(monkeypatch) as listener, sockets.claimed("mine"), sockets.claimed("other"):
        with _reached("mine") as cluster:
            assert (cluster.name, cluster.kind) == ("mine", "local processes")
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_daemon_that_hangs_keeps_nobody_from_a_local_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent(monkeypatch), sockets.claimed("mine"):
        with _reached("") as cluster:
            assert cluster.name == "mine"
        with pytest.raises(
            Unavailable, match=r"no local cluster 'x' runs here; there is 'mine' .*, and no Docker daemon"
        ):
            _reached("x").__enter__()


@pytest.mark.parametrize(
    ("status", "answers"), [(500, "{}"), (200, "<html>"), (200, "{}"), (200, LISTS | {"containers": {"x": 1}})]
)
def test_a_daemon_that_answers_badly(
    status: int, answers: Mapping[str, object] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon(monkeypatch, status, answers), sockets.claimed("mine"):
        with _reached("") as cluster:
            assert cluster.name == "mine"
        with pytest.raises(
            Unavailable, match=r"no local cluster 'x' runs here; there is 'mine' .*, and .* Docker daemon"
        ):
            _reached("x").__enter__()


@pytest.mark.parametrize(("lists", "there"), [(LISTS, ""), (LEFT, ", 'boxed' (Docker)")])
def test_what_is_not_there_can_not_end(
    lists: Mapping[str, object], there: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(monkeypatch, 200, lists), sockets.claimed("mine"):
        assert run(["down", "--name", "x"]) == 2
    assert capsys.readouterr().err == (
        f"stageline: no cluster 'x' runs here; there is 'mine' (local processes){there}\n"
    )


def test_where_nothing_runs_there_is_nothing_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(monkeypatch, 200, LISTS):
        assert run(["down"]) == 2
    assert "no cluster runs here; start one with stageline up PLAN" in capsys.readouterr().err


def test_of_two_clusters_one_must_be_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(monkeypatch, 200, LEFT), sockets.claimed("mine"):
        assert run(["ps"]) == 2
    assert "'mine' (local processes), 'boxed' (Docker); choose one with --name" in capsys.readouterr().err


def test_containers_on_a_daemon_that_hangs(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stageline.cluster.docker_daemon._HELLO_S", 0.2)
    with silent(monkeypatch):
        assert run(["up", str(root / "tests/data/fewest.plan.json"), "--docker"]) == 1
    assert "no Docker daemon answers at tcp://127.0.0.1:" in capsys.readouterr().err


def test_containers_do_not_take_the_name_of_a_local_cluster(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sockets.claimed("stageline"):
        assert run(["up", str(root / "tests/data/fewest.plan.json"), "--docker"]) == 1
    assert "a cluster 'stageline' of local processes runs here" in capsys.readouterr().err
