"""The sockets of clusters of local processes: in a folder that only their user can enter, one per cluster, by name."""

import contextlib
import fcntl
import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from stageline.errors import BadInput, Busy, UsageError

LOCAL_NAME = "local"  # of the first cluster of local processes without a name; the next is `local-2`
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_SUFFIX = ".sock"
_BACKLOG = 16
_CONNECT_S = 5.0


def folder() -> Path:
    """Where the sockets are. Raises UsageError if it can't be made, or if others could enter it."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    own = base and os.access(base, os.W_OK)  # sudo may have kept another user's
    path = Path(base) / "stageline" if own else Path(tempfile.gettempdir()) / f"stageline-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise UsageError(
            f"{path}: can't be made ({error.strerror}); set XDG_RUNTIME_DIR to a folder of yours"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UsageError(
            f"{path}: not a folder that only you can enter, so that others could reach your clusters; "
            "remove it, or set XDG_RUNTIME_DIR to a folder of yours"
        )
    return path


def names() -> list[str]:
    """The clusters of this user on this host, also those that are stopped and don't answer."""
    found = sorted(path.name.removesuffix(_SUFFIX) for path in folder().glob(f"*{_SUFFIX}"))
    return [name for name in found if not _is_free(_path(name))]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The name of a cluster, and the socket at which it takes calls."""

    name: str
    listener: socket.socket


@contextlib.contextmanager
def claimed(name: str) -> Iterator[Claimed]:
    """A socket that listens under a name; if that is empty, under the first of `local`, `local-2`, ... that is free.

    Its file is gone afterwards, if it is still the one made here. Raises Busy when another cluster has the name, and
    BadInput for what is no name.
    """
    if name and not _NAME.fullmatch(name):
        raise BadInput("--name", name, "not 1 to 40 letters, digits, dots, dashes and underscores", "give another name")
    with _lock():
        chosen = next((tried for tried in ([name] if name else _numbered()) if _is_free(_path(tried))), None)
        if chosen is None:
            raise Busy(f"a cluster {name!r} runs already; end it with stageline down --name {name}, or name another")
        path = _path(chosen)
        listener = _listen(path)
        made = _identity(path)
    try:
        yield Claimed(chosen, listener)
    finally:
        with contextlib.suppress(OSError), _lock():
            if _identity(path) == made:
                path.unlink()
        listener.close()


def reach(name: str) -> socket.socket:
    """A connection to a cluster. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_CONNECT_S)
        connection.connect(str(_path(name)))
    except BaseException:
        connection.close()
        raise
    return connection


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # of a cluster that was killed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _unusable(path, error) from None
    return listener


def _numbered() -> Iterator[str]:
    return (LOCAL_NAME if n == 1 else f"{LOCAL_NAME}-{n}" for n in count(1))


def _path(name: str) -> Path:
    return folder() / f"{name}{_SUFFIX}"


def _is_free(path: Path) -> bool:
    """Whether nobody listens there. One that is stopped (Ctrl-Z) listens, though its queue of connections may be full.

    Raises BadInput for a path at which no socket can be.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return True
        except (BlockingIOError, TimeoutError):
            return False
        except OSError as error:
            raise _unusable(path, error) from None
        return False


def _unusable(path: Path, error: OSError) -> BadInput:
    return BadInput("socket", str(path), str(error), "set XDG_RUNTIME_DIR to another folder, with a short path")


def _identity(path: Path) -> tuple[int, int]:
    """What tells a file from another one that takes its place. Raises OSError when there is none."""
    found = path.lstat()
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One claim at a time, so that none removes the socket that another has just made."""
    with (folder() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
