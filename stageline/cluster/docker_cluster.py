"""A cluster of containers on a Docker daemon. Everything it creates has its label; it touches nothing without it."""

import io
import tarfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import EndpointConfig

from stageline.cluster import containers
from stageline.cluster.docker_image import stale_image
from stageline.cluster.docker_parts import (
    CLUSTER_LABEL,
    FINGERPRINT_LABEL,
    PART_LABEL,
    ContainerSpec,
    DockerOptions,
    fingerprint,
    router_part,
    stage_parts,
)
from stageline.cluster.parts import find_part
from stageline.errors import RunFailed, Unavailable, UsageError, VersionMismatch
from stageline.runtime.deployment import Deployment

READY_S = 180.0
_POLL_S = 0.5
_MAX_RESTARTS = 3  # a server that has restarted this often will not come up
_MAX_CONCURRENT = 4  # containers that start or stop at once


class DockerCluster:
    """The containers, the network and the volume with one cluster's label."""

    def __init__(self, client: docker.DockerClient, name: str, say: Callable[[str], None]) -> None:
        self._client, self.name, self._say = client, name, say
        self._label: dict[str, str | list[str] | bool] = {"label": f"{CLUSTER_LABEL}={name}"}

    def members(self) -> dict[str, Container]:
        """All containers by part, running or not: the router first, then the stages."""
        found = self._client.containers.list(all=True, filters=self._label, ignore_removed=True)
        parts = {str(container.labels[PART_LABEL]): container for container in found}
        return dict(sorted(parts.items(), key=lambda item: (item[0] != containers.ROUTER, item[0])))

    def member(self, part: str) -> Container:
        """The container of a part: `router`, `stage-03`, or the stage's index alone. Raises UsageError."""
        members = self.members()
        return members[find_part(part, members, self.name)]

    def up(self, served: Deployment, options: DockerOptions, checkout: Path | None) -> None:
        """Creates what is missing, replaces a cluster of another plan, and waits until every stage serves.

        On failure it removes the cluster, unless it kept containers that existed before. Raises StagelineError;
        VersionMismatch where the image holds another Stageline than this command.
        """
        image = self._image(options.image, checkout)
        if stale := self._stale(options.image, image):
            self._say(stale)
        mark = fingerprint(served, options, image)
        old = self.members()
        if any(container.labels.get(FINGERPRINT_LABEL) != mark for container in old.values()):
            self._say(f"replacing cluster {self.name!r}: it has another plan, image or options")
            self.down()
            old = {}
        try:
            self._create_missing(served, options, mark, old)
            self._await_health()
        except BaseException as error:
            if not old:
                self._say(f"removing the unfinished cluster {self.name!r}")
                self.clear_away()
            if stale and isinstance(error, RunFailed | Unavailable):
                raise VersionMismatch(f"{stale} ({error})") from None
            raise

    def clear_away(self) -> None:
        """Removes the whole cluster, though Ctrl-C come meanwhile: it comes once (`until_signalled`)."""
        try:
            self.down()
        except KeyboardInterrupt:
            self.down()

    def down(self) -> int:
        """Removes the whole cluster; returns how many containers it had."""
        members = self.members().values()
        _each(lambda container: _remove(lambda: container.remove(force=True, v=True)), members)
        for network in self._client.networks.list(filters=self._label):
            _remove(network.remove)
        for volume in self._client.volumes.list(filters=self._label):
            _remove(volume.remove)
        return len(members)

    def published(self) -> dict[int, str]:
        """The published address of each port of the router, by its port inside the container."""
        router = self.member(containers.ROUTER)
        router.reload()
        ports = router.attrs["NetworkSettings"]["Ports"] or {}
        return {
            int(port.partition("/")[0]): f"{bound[0]['HostIp']}:{bound[0]['HostPort']}"
            for port, bound in ports.items()
            if bound
        }

    def connect(self, container: Container) -> None:
        """Reconnects a container to the network, with its aliases."""
        part = container.labels[PART_LABEL]
        aliases = [part] if part == containers.ROUTER else [part, "stages"]
        self._network().connect(container, aliases=aliases)

    def disconnect(self, container: Container) -> None:
        """Disconnects a container from the network."""
        self._network().disconnect(container)

    def _network(self) -> Any:
        return self._client.networks.get(self.name)

    def _image(self, image: str, checkout: Path | None) -> str:
        """The id of an image. A missing one is built if there is a checkout. Raises UsageError if there is none."""
        try:
            return str(self._client.images.get(image).id)
        except ImageNotFound:
            if checkout is None:
                raise UsageError(
                    f"image {image} is not on this engine; inside a checkout of Stageline "
                    f"run docker build -f deploy/Dockerfile -t {image} . or name another one with --image"
                ) from None
        self._say(f"building {image}; it takes a minute")
        built, _ = self._client.images.build(path=str(checkout), dockerfile="deploy/Dockerfile", tag=image, rm=True)
        return str(built.id)

    def _stale(self, image: str, image_id: str) -> str:
        return stale_image(self._client, image, image_id)

    def _create_missing(self, served: Deployment, options: DockerOptions, mark: str, old: dict[str, Container]) -> None:
        labels = {CLUSTER_LABEL: self.name, FINGERPRINT_LABEL: mark}
        if not self._client.networks.list(filters=self._label):
            self._client.networks.create(self.name, driver="bridge", check_duplicate=True, labels=labels)
        volume = f"{self.name}-plan"
        if not self._client.volumes.list(filters=self._label):
            self._client.volumes.create(volume, labels=labels)

        def start(part: ContainerSpec) -> None:
            container = old.get(part.name) or self._create(part, labels)
            if part.name == containers.ROUTER:
                container.put_archive(containers.PLAN_FOLDER, _tar("plan.json", served.document.canonical()))
            if container.status == "paused":
                container.unpause()
            container.start()

        _each(start, stage_parts(served, options))
        start(router_part(served, options, volume))

    def _create(self, part: ContainerSpec, labels: dict[str, str]) -> Container:
        endpoint = EndpointConfig(self._client.api.api_version, aliases=list(part.aliases))
        return self._client.containers.create(
            name=f"{self.name}-{part.name}",
            hostname=part.name,
            labels=labels | {PART_LABEL: part.name},
            network=self.name,
            networking_config={self.name: endpoint},
            **part.settings,
        )

    def _await_health(self) -> None:
        """Waits until every stage serves. Asks inside the router's container: the daemon may be remote."""
        router, deadline = self.member(containers.ROUTER), time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                if router.exec_run(list(containers.ROUTER_CHECK)).exit_code == 0:
                    return
            except APIError:
                pass  # it is restarting
            self._look_for_crashes()
            time.sleep(_POLL_S)
        raise Unavailable(f"not every stage of cluster {self.name!r} serves after {READY_S:g} s; see stageline ps")

    def _look_for_crashes(self) -> None:
        for part, container in self.members().items():
            if container.status in ("exited", "restarting"):
                container.reload()
                if container.attrs["RestartCount"] >= _MAX_RESTARTS:
                    last = container.logs(tail=1).decode(errors="replace").strip()
                    raise RunFailed(f"{part} keeps crashing; its last log line: {last or 'none'}")


def _remove(remove: Callable[[], object]) -> None:
    """Removes an object that may already be gone."""
    try:
        remove()
    except NotFound:
        pass
    except APIError as error:
        if "already in progress" not in str(error.explanation):
            raise


def _each(call: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Calls for each item, a few at a time; raises the first failure after the others have ended."""
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        list(pool.map(call, items))


def _tar(name: str, data: bytes) -> bytes:
    """A tar archive of one readable file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(data), 0o444
        archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
