"""A run claims its directory before it changes anything: nothing of the user's is lost, and no other run is in it."""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from stageline.errors import BadInput, Busy
from stageline.report.rundir import RUN_FILES, SUMMARY_FILE

OURS = {"complete", "topology", "requests"}  # fields of every run's summary.json
ANOTHER = "give -o a new or empty directory, or one that an earlier run has written"


def claim(directory: Path, inputs: Iterable[Path] = ()) -> int:
    """Make the directory if need be and lock it. Closing the descriptor returned, or the process's end, unlocks it.

    Raises BadInput for a directory whose files a run must not touch, Busy when another run is writing into it, and
    OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, directory)
        _check(directory, inputs)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(f"-o {directory}: another run is writing into it; wait for its end or give another") from None
    except OSError:
        return  # a file system without locks


def _check(directory: Path, inputs: Iterable[Path]) -> None:
    written = [path for name in RUN_FILES if (path := directory / name).exists()]
    for given in inputs:
        if any(_same(path, given) for path in written):
            raise BadInput(f"-o {directory}", None, f"the run would overwrite its own input {given}", ANOTHER)
    if not _is_run(directory / SUMMARY_FILE) and any(directory.iterdir()):
        raise BadInput(f"-o {directory}", None, "it has files in it that are not a run's", ANOTHER)


def _same(path: Path, given: Path) -> bool:
    try:
        return path.samefile(given)
    except OSError:  # not a path: a synthetic workload
        return False


def _is_run(summary: Path) -> bool:
    try:
        found = msgspec.json.decode(summary.read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(found, dict) and found.keys() >= OURS
