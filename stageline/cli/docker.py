"""Clusters in Docker: `up --docker`, and `down`, `ps`, `logs`, `stats`, `cluster ...` for what it started."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from docker.models.containers import Container

from stageline.cli.docker_flags import DEFAULT_NAME, DockerFlags, Name
from stageline.cli.numbers import WHOLE
from stageline.cli.output import AsJson, print_json, print_table
from stageline.cli.render import checkout
from stageline.cli.signals import until_signalled
from stageline.cluster import containers
from stageline.cluster.docker_cluster import DockerCluster
from stageline.cluster.docker_daemon import docker_client
from stageline.cluster.docker_parts import FINGERPRINT_LABEL, DockerOptions
from stageline.cluster.docker_stats import usage
from stageline.cluster.local import LocalOptions
from stageline.errors import UsageError
from stageline.plan.schema import Plan
from stageline.runtime.logs import say
from stageline.units import bytes_text

PartName = Annotated[str, Parameter(help="Part of the cluster: stage-03, 3, or router.")]

cluster_app = App(name="cluster")


def up_in_docker(plan: Plan, local: LocalOptions, router: Mapping[str, object], flags: DockerFlags) -> None:
    """Run until Ctrl-C, which removes the cluster; with --detach until it is healthy. `router`: the router's flags."""
    if router["record"]:
        raise UsageError("--record needs local processes: the router's container has no place to keep a file")
    if router["tokenizer"]:
        raise UsageError("--tokenizer needs local processes: the router's container does not see this host's files")
    if local.tls.cert:
        raise UsageError("--tls-cert needs local processes: for containers see docs/security.md")
    options = DockerOptions(
        image=flags.image,
        publish=flags.publish,
        http_port=int(str(router["http-port"])),
        grpc_port=local.grpc_port,
        metrics_port=local.metrics_port,
        payload=local.payload,
        window=local.window,
        log_level=local.log_level,
        log_format=local.log_format,
        router={name: str(value) for name, value in router.items() if name not in ("http-port", "record")}
        | ({"api-key": local.api_key} if local.api_key else {}),
    )
    with until_signalled(well=not flags.detach), _named(flags.name) as cluster:
        cluster.up(plan, options, _checkout_of(options.image))
        if flags.detach:
            _print_endpoints(plan, cluster)
            print(f"stop it with stageline down --name {flags.name}", flush=True)
            return
        try:
            _print_endpoints(plan, cluster)
            cluster.member(containers.ROUTER).wait(timeout=None, condition="removed")
        finally:
            cluster.down()


def down(*, name: Name = DEFAULT_NAME) -> None:
    """Remove a cluster that `up --docker` started, if there is one: containers, network, volume."""
    with _named(name) as cluster:
        print(f"removed {cluster.down()} containers of cluster {name!r}")


def ps(*, name: Name = DEFAULT_NAME, json: AsJson = False) -> None:
    """List the containers of a cluster."""
    with _named(name) as cluster:
        rows = [_row(part, container) for part, container in cluster.members().items()]
    if json:
        print_json(rows)
        return
    columns = [("part", False), ("status", False), ("health", False), ("restarts", True), ("id", False)]
    print_table(f"cluster {name!r}", columns, [[str(value) for value in row.values()] for row in rows])


def logs(
    stage: PartName = "",
    /,
    *,
    name: Name = DEFAULT_NAME,
    tail: Annotated[int, WHOLE, Parameter(help="Last lines to print of each part.")] = 20,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), negative="", help="Print new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Print what one part has logged, or all parts one after the other."""
    if follow and not stage:
        raise UsageError("--follow needs one part: stageline logs stage-03 --follow")
    with _named(name) as cluster:
        parts = {stage: cluster.member(stage)} if stage else cluster.members()
        for part, container in parts.items():
            if follow:
                for piece in container.logs(stream=True, follow=True, tail=tail):
                    print(piece.decode(errors="replace"), end="", flush=True)
                return
            for line in container.logs(tail=tail).decode(errors="replace").splitlines():
                print(line if stage else f"{part}  {line}")


def stats(*, name: Name = DEFAULT_NAME, json: AsJson = False) -> None:
    """Show the CPU (over one second) and the memory of every container of a cluster."""
    with _named(name) as cluster:
        used = usage(cluster.members())
    if json:
        print_json(used)
        return
    rows = [[row.part, f"{row.cpu_cores:.1%}", bytes_text(row.memory_bytes)] for row in used]
    total = ["all", f"{sum(row.cpu_cores for row in used):.1%}", bytes_text(sum(row.memory_bytes for row in used))]
    print_table(f"cluster {name!r}", [("part", False), ("CPU of a core", True), ("memory", True)], [*rows, total])


@cluster_app.command
def kill(stage: PartName, *, name: Name = DEFAULT_NAME) -> None:
    """End a part at once, as a crash would; it stays down until `restart`."""
    _drill(name, stage, "killed", lambda _, container: container.kill())


@cluster_app.command
def pause(stage: PartName, *, name: Name = DEFAULT_NAME) -> None:
    """Freeze a part: it keeps its connections but does not answer."""
    _drill(name, stage, "paused", lambda _, container: container.pause())


@cluster_app.command
def resume(stage: PartName, *, name: Name = DEFAULT_NAME) -> None:
    """Resume a paused part."""
    _drill(name, stage, "resumed", lambda _, container: container.unpause())


@cluster_app.command
def restart(stage: PartName, *, name: Name = DEFAULT_NAME) -> None:
    """Start a part again, whether it is running or not."""
    _drill(name, stage, "restarted", lambda _, container: container.restart())


@cluster_app.command
def disconnect(stage: PartName, *, name: Name = DEFAULT_NAME) -> None:
    """Take a part off the network."""
    _drill(name, stage, "disconnected", lambda cluster, container: cluster.disconnect(container))


@cluster_app.command
def connect(stage: PartName, *, name: Name = DEFAULT_NAME) -> None:
    """Put a disconnected part back on the network."""
    _drill(name, stage, "connected", lambda cluster, container: cluster.connect(container))


def _drill(name: str, stage: str, done: str, action: Callable[[DockerCluster, Container], object]) -> None:
    with _named(name) as cluster:
        container = cluster.member(stage)
        action(cluster, container)
    print(f"{container.name} {done}")


@contextmanager
def _named(name: str) -> Iterator[DockerCluster]:
    with docker_client() as client:
        yield DockerCluster(client, name, say)


def _checkout_of(image: str) -> Path | None:
    """The checkout to build the image from: this folder's, else the program's. None for images of other projects."""
    if image != containers.IMAGE:
        return None
    for folder in (Path.cwd(), Path(__file__).parent):
        try:
            return checkout(folder, "--docker")
        except UsageError:
            continue
    return None


def _row(part: str, container: Container) -> dict[str, str | int]:
    state = container.attrs["State"]
    return {
        "part": part,
        "status": str(container.status),
        "health": str(state.get("Health", {}).get("Status", "")),
        "restarts": int(container.attrs["RestartCount"]),
        "id": str(container.short_id),
    }


def _print_endpoints(plan: Plan, cluster: DockerCluster) -> None:
    at = cluster.published()
    mark = cluster.member(containers.ROUTER).labels[FINGERPRINT_LABEL]
    print(f"router      grpc {at[containers.GRPC_PORT]}  metrics http://{at[containers.METRICS_PORT]}/metrics")
    if containers.HTTP_PORT in at:
        print(f"api         http://{at[containers.HTTP_PORT]}/v1")
    print(f"{plan.model}: {plan.replicas * len(plan.stages)} stage servers are healthy ({cluster.name} {mark})")
    print(f"next: stageline run PLAN --cluster {at[containers.GRPC_PORT]} --workload ...", flush=True)
