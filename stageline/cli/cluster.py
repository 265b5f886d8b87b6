"""Commands on a cluster that `up` has started, of local processes or in Docker: ps, logs, stats, down, cluster ..."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import App, Parameter

from stageline.cli.numbers import WHOLE
from stageline.cli.output import AsJson, print_json, print_table
from stageline.cluster import sockets
from stageline.cluster.docker_cluster import DockerCluster
from stageline.cluster.docker_daemon import docker_client
from stageline.cluster.docker_running import DockerRunning, cluster_names
from stageline.cluster.local_running import LocalRunning
from stageline.cluster.parts import DONE, Running, choose, none_of
from stageline.errors import RunFailed, Unavailable, UsageError
from stageline.runtime.logs import say
from stageline.units import bytes_text

PartName = Annotated[str, Parameter(help="Part of the cluster: stage-03, 3, or router.")]
Which = Annotated[
    str,
    Parameter(
        show_default=False, help="Name of the cluster, of local processes first; not needed when only one runs here."
    ),
]

_LOOK_S = 3  # for which Docker may look for clusters: the user may mean a local one

cluster_app = App(name="cluster")


def down(*, name: Which = "") -> None:
    """End a cluster that `up` has started: its processes, or its containers, network and volume."""
    with _reached(name) as cluster:
        print(f"removed {cluster.down()} of cluster {cluster.name!r}")


def ps(*, name: Which = "", json: AsJson = False) -> None:
    """List the processes or containers of a cluster."""
    with _reached(name) as cluster:
        rows = cluster.rows()
    if json:
        print_json(rows)
        return
    columns = [(key, key in ("restarts", "pid")) for key in rows[0]] if rows else []
    title = f"cluster {cluster.name!r} ({cluster.kind})"
    print_table(title, columns, [[str(value) for value in row.values()] for row in rows])


def logs(
    stage: PartName = "",
    /,
    *,
    name: Which = "",
    tail: Annotated[int, WHOLE, Parameter(help="Last lines to print of each part.")] = 20,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), negative="", help="Print new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Print what one part has logged, or all parts one after the other."""
    if follow and not stage:
        raise UsageError("--follow needs one part: stageline logs stage-03 --follow")
    with _reached(name) as cluster:
        for part, line in cluster.logs(stage, tail, follow=follow):
            print(line if stage else f"{part}  {line}", flush=follow)


def stats(*, name: Which = "", json: AsJson = False) -> None:
    """Show the CPU (over one second) and the memory of every process or container of a cluster."""
    with _reached(name) as cluster:
        used = cluster.usage()
    if json:
        print_json(used)
        return
    rows = [[row.part, f"{row.cpu_cores:.1%}", bytes_text(row.memory_bytes)] for row in used]
    total = ["all", f"{sum(row.cpu_cores for row in used):.1%}", bytes_text(sum(row.memory_bytes for row in used))]
    columns = [("part", False), ("CPU of a core", True), ("memory", True)]
    print_table(f"cluster {cluster.name!r} ({cluster.kind})", columns, [*rows, total])


@cluster_app.command
def stop(stage: PartName, *, name: Which = "") -> None:
    """End a part in order, with SIGTERM; it stays down until `restart`."""
    _act(name, stage, "stop")


@cluster_app.command
def kill(stage: PartName, *, name: Which = "") -> None:
    """End a part at once, as a crash would; it stays down until `restart`."""
    _act(name, stage, "kill")


@cluster_app.command
def pause(stage: PartName, *, name: Which = "") -> None:
    """Freeze a part: it keeps its connections but does not answer."""
    _act(name, stage, "pause")


@cluster_app.command
def resume(stage: PartName, *, name: Which = "") -> None:
    """Resume a paused part."""
    _act(name, stage, "resume")


@cluster_app.command
def restart(stage: PartName, *, name: Which = "") -> None:
    """Start a part again, whether it is running or not."""
    _act(name, stage, "restart")


@cluster_app.command
def disconnect(stage: PartName, *, name: Which = "") -> None:
    """Take a container off the network."""
    _act(name, stage, "disconnect")


@cluster_app.command
def connect(stage: PartName, *, name: Which = "") -> None:
    """Put a disconnected container back on the network."""
    _act(name, stage, "connect")


for _command in (ps, logs, stats):
    cluster_app.command(_command)


def _act(name: str, stage: str, verb: str) -> None:
    with _reached(name) as cluster:
        part = cluster.act(verb, stage)
    print(f"{part} {DONE[verb]}")


@contextmanager
def _reached(name: str) -> Iterator[Running]:
    """The cluster of that name, or the only one there is. Docker is not asked for one that runs without it.

    Raises UsageError, naming what runs; Unavailable or RunFailed when only Docker could know and does not say.
    """
    local: list[Running] = [LocalRunning(each) for each in sockets.names()]
    if any(cluster.name == name for cluster in local):
        yield choose(local, name)
        return
    try:
        with docker_client(_LOOK_S) as client:
            in_docker = cluster_names(client)
    except (Unavailable, RunFailed) as error:
        if name or not local:
            raise Unavailable(f"{none_of(local, name, 'local cluster')}, and {error}") from None
        yield choose(local, name)
        return
    with docker_client() as client:
        yield choose([*local, *(DockerRunning(DockerCluster(client, each, say)) for each in in_docker)], name)
