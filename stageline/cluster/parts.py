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
    if not running:
        raise UsageError(f"{none_of(running, name)}; start one with stageline up PLAN, in Docker with --docker")
    if not found:
        raise UsageError(none_of(running, name))
    raise UsageError(f"{len(found)} clusters run here: {_listed(running)}; choose one with --name")


def none_of(running: Sequence[Running], name: str, kind: str = "cluster") -> str:
    """That none of these has that name, or that there are none."""
    missing = f"no {kind} {name!r} runs here" if name else f"no {kind} runs here"
    return f"{missing}; there is {_listed(running)}" if running else missing


def _listed(running: Sequence[Running]) -> str:
    return ", ".join(f"{cluster.name!r} ({cluster.kind})" for cluster in running)
