"""A cluster in Docker that another command has started."""

from collections.abc import Callable, Iterator

import docker
from docker.models.containers import Container

from stageline.cluster.docker_cluster import DockerCluster
from stageline.cluster.docker_parts import CLUSTER_LABEL, PART_LABEL
from stageline.cluster.docker_stats import usage
from stageline.cluster.parts import Usage
from stageline.errors import Unavailable

ACTIONS: dict[str, Callable[[DockerCluster, Container], object]] = {
    "stop": lambda _, container: container.stop(),
    "kill": lambda _, container: container.kill(),
    "pause": lambda _, container: container.pause(),
    "resume": lambda _, container: container.unpause(),
    "restart": lambda _, container: container.restart(),
    "disconnect": lambda cluster, container: cluster.disconnect(container),
    "connect": lambda cluster, container: cluster.connect(container),
}


class DockerRunning:
    """See `parts.Running`."""

    kind = "Docker"

    def __init__(self, cluster: DockerCluster) -> None:
        self.name, self._cluster = cluster.name, cluster

    def rows(self) -> list[dict[str, str | int]]:
        """One row per container."""
        return [_row(part, container) for part, container in self._cluster.members().items()]

    def logs(self, part: str, tail: int, *, follow: bool) -> Iterator[tuple[str, str]]:
        """What its containers have logged."""
        cluster = self._cluster
        for name, container in ({part: cluster.member(part)} if part else cluster.members()).items():
            if follow:
                for line in _lines(container.logs(stream=True, follow=True, tail=tail)):
                    yield name, line
                return
            for line in container.logs(tail=tail).decode(errors="replace").splitlines():
                yield name, line

    def usage(self) -> list[Usage]:
        """Of the containers, by the daemon."""
        return usage(self._cluster.members())

    def act(self, verb: str, part: str) -> str:
        """See `ACTIONS`."""
        container = self._cluster.member(part)
        ACTIONS[verb](self._cluster, container)
        return str(container.labels[PART_LABEL])

    def down(self) -> str:
        """Containers, network and volume."""
        containers = self._cluster.down()
        return f"{containers} containers" if containers else "what was left (no containers)"


def cluster_names(client: docker.DockerClient) -> list[str]:
    """The clusters of a daemon, also those of which only a network or a volume is left.

    Raises Unavailable when what answers is no Docker daemon.
    """
    labelled = {"label": CLUSTER_LABEL}
    try:
        found = [
            *client.api.containers(all=True, filters=labelled),
            *client.api.networks(filters=labelled),
            *(client.api.volumes(filters=labelled)["Volumes"] or ()),
        ]
        return sorted({str(each["Labels"][CLUSTER_LABEL]) for each in found})
    except (KeyError, TypeError, AttributeError):
        raise Unavailable("what answers there is no Docker daemon: its list of containers has another form") from None


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _row(part: str, container: Container) -> dict[str, str | int]:
    state = container.attrs["State"]
    return {
        "part": part,
        "status": str(container.status),
        "health": str(state.get("Health", {}).get("Status", "")),
        "restarts": int(container.attrs["RestartCount"]),
        "id": str(container.short_id),
    }
