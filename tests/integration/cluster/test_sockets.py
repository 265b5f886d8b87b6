"""Names and sockets of clusters of local processes."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from stageline.cluster import sockets
from stageline.errors import BadInput, Busy, UsageError


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "stageline"


def test_a_name_is_found_while_its_cluster_runs_and_only_its_user_gets_there(runtime: Path) -> None:
    with sockets.claimed("") as first, sockets.claimed("") as second, sockets.claimed("mine") as third:
        assert [claim.name for claim in (first, second, third)] == ["local", "local-2", "mine"]
        assert sockets.names() == ["local", "local-2", "mine"]
        assert runtime.stat().st_mode & 0o777 == 0o700
        assert (runtime / "mine.sock").stat().st_mode & 0o777 == 0o600
    assert sockets.names() == []
    assert list(runtime.glob("*.sock")) == []


def test_a_name_in_use_is_refused() -> None:
    with sockets.claimed("mine"), pytest.raises(Busy, match="'mine' runs already; end it with stageline down"):
        sockets.claimed("mine").__enter__()


def test_a_killed_cluster_leaves_its_name_to_the_next(runtime: Path) -> None:
    with sockets.claimed("mine") as killed:
        killed.listener.close()  # its file stays, as after SIGKILL
        assert sockets.names() == []
        with sockets.claimed("mine"):
            assert sockets.names() == ["mine"]


def test_a_cluster_that_is_stopped_keeps_its_name() -> None:
    """Nobody takes connections there, as after Ctrl-Z, until the queue of them is full."""
    with ExitStack() as stack, sockets.claimed("mine"):
        with pytest.raises(BlockingIOError):
            for _ in range(1000):
                stack.enter_context(sockets.reach("mine"))
        assert sockets.names() == ["mine"]
        with pytest.raises(Busy, match="'mine' runs already"):
            sockets.claimed("mine").__enter__()


def test_at_its_end_a_cluster_removes_no_socket_of_another(runtime: Path) -> None:
    with sockets.claimed("mine"):
        (runtime / "mine.sock").unlink()  # as by somebody who clears up
        successor = sockets.claimed("mine")
        successor.__enter__()
    assert sockets.names() == ["mine"]
    successor.__exit__(None, None, None)
    assert list(runtime.glob("*.sock")) == []


@pytest.mark.parametrize("name", ["-x", "a/b", "..", "x" * 41, "a b"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(BadInput, match="--name: not 1 to 40 letters"):
        sockets.claimed(name).__enter__()


def test_where_the_runtime_folder_is_not_ours_another_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "of-nobody"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with sockets.claimed("mine"):
        assert sockets.names() == ["mine"]
        assert [path.name for path in tmp_path.iterdir()] == [f"stageline-{os.getuid()}"]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "of-nobody"))
    with pytest.raises(UsageError, match="set XDG_RUNTIME_DIR to a folder of yours"):
        sockets.names()


@pytest.mark.parametrize("how", ["mode", "link"])
def test_a_folder_that_others_can_enter_is_not_used(runtime: Path, how: str, tmp_path: Path) -> None:
    if how == "mode":
        runtime.mkdir()
        runtime.chmod(0o755)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        runtime.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="not a folder that only you can enter"):
        sockets.names()
    assert list(runtime.iterdir()) == []


def test_a_path_too_long_for_a_socket_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(BadInput, match="set XDG_RUNTIME_DIR"):
        sockets.claimed("").__enter__()
