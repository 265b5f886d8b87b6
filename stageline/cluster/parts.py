"""What all running clusters have in common, whether they are local processes or containers."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from stageline.errors import UsageError

DONE = {
    "stop": "stopped",
    "kill": "killed",
    "pause": "paused",
    "resume": "resumed",
    "restart": "restarted",
    "disconnect": "disconnected",
    "connect": "connected",
}  # what can be done to a part, and how it is said afterwards


class Usage(msgspec.Struct, frozen=True):
    """CPU and memory of one part; 1.0 is one core."""

    part: str
    cpu_cores: float
    memory_bytes: int


class Running(Protocol):
    """A cluster that runs, as other commands reach it. Methods raise StagelineError."""

    name: str
    kind: str

    def rows(self) -> list[dict[str, str | int]]:
        """One row per part, the router first, all with the same keys."""

    def logs(self, part: str, tail: int, *, follow: bool) -> Iterator[tuple[str, str]]:
        """Part and line; of all parts if `part` is empty. With `follow` new lines, without end."""

    def usage(self) -> list[Usage]:
        """CPU over one second, and memory, of every part that runs."""

    def act(self, verb: str, part: str) -> str:
        """Does one of `DONE` to a part; returns the part's name."""

    def down(self) -> str:
        """Ends the cluster and returns when nothing of it is left, with a word on what was."""


def find_part(part: str, parts: Iterable[str], cluster: str) -> str:
    """A part by its name or, for a stage of a single replica, by its index alone. Raises UsageError."""
    names = list(parts)
    by_index = {name.removeprefix("stage-").lstrip("0") or "0": name for name in names}
    found = part if part in names else by_index.get(part)
    if found is None:
        known = ", ".join(names) if names else "none; start it with stageline up"
        raise UsageError(f"cluster {cluster!r} has no part {part!r}; it has {known}")
    return found


def choose(running: Sequence[Running], name: str) -> Running:
    """The cluster of that name, or the only one if `name` is empty. Raises UsageError, naming those that run."""
    found = [cluster for cluster in running if name in ("", cluster.name)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{cluster.name!r} ({cluster.kind})" for cluster in running)
    if not running:
        missing = f"no cluster {name!r} runs" if name else "no cluster runs"
        raise UsageError(f"{missing} here; start one with stageline up PLAN, in Docker with --docker")
    if not found:
        raise UsageError(f"no cluster {name!r} runs here; there is {known}")
    if name:
        raise UsageError(f"two clusters have that name: {known}; start one of them again under another --name")
    raise UsageError(f"{len(found)} clusters run here: {known}; choose one with --name")
