"""`stageline up --docker`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stageline.cli.docker_flags import DOCKER_NAME, DockerFlags
from stageline.cli.next_steps import next_steps
from stageline.cli.render import checkout
from stageline.cli.signals import until_signalled
from stageline.cluster import containers, sockets
from stageline.cluster.docker_cluster import DockerCluster
from stageline.cluster.docker_daemon import docker_client
from stageline.cluster.docker_parts import FINGERPRINT_LABEL, DockerOptions
from stageline.cluster.local import LocalOptions
from stageline.errors import Busy, UsageError
from stageline.runtime.deployment import Deployment
from stageline.runtime.logs import say


def up_in_docker(served: Deployment, local: LocalOptions, router: Mapping[str, object], flags: DockerFlags) -> None:
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
    name = flags.name or DOCKER_NAME
    if name in sockets.names():
        raise Busy(f"a cluster {name!r} of local processes runs here, and would be the one found; give another --name")
    with until_signalled(well=not flags.detach), _named(name) as cluster:
        try:
            cluster.up(served, options, _checkout_of(options.image))
        except KeyboardInterrupt:
            if not flags.detach:  # also one that was there before, or that has become healthy at this moment
                cluster.down()
            raise
        if flags.detach:
            _print_endpoints(served, cluster, local)
            print(f"stop it with stageline down --name {cluster.name}", flush=True)
            return
        try:
            _print_endpoints(served, cluster, local)
            cluster.member(containers.ROUTER).wait(timeout=None, condition="removed")
        finally:
            cluster.clear_away()


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


def _print_endpoints(served: Deployment, cluster: DockerCluster, local: LocalOptions) -> None:
    at = cluster.published()
    mark = cluster.member(containers.ROUTER).labels[FINGERPRINT_LABEL]
    print(f"router      grpc {at[containers.GRPC_PORT]}  metrics http://{at[containers.METRICS_PORT]}/metrics")
    if containers.HTTP_PORT in at:
        print(f"api         http://{at[containers.HTTP_PORT]}/v1")
    print(f"{', '.join(served.models)}: {len(list(served.stages))} stage servers are healthy ({cluster.name} {mark})")
    door = f"http://{at[containers.HTTP_PORT]}" if containers.HTTP_PORT in at else ""
    print("\n".join(next_steps(at[containers.GRPC_PORT], door, local)), flush=True)
