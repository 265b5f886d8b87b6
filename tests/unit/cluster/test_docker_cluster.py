"""A cluster of containers: what keeps it from coming up is named, and nothing may keep it from its end."""

from types import SimpleNamespace
from typing import Any, cast

import docker
import pytest
from docker.errors import ContainerError

from stageline.cluster.docker_cluster import DockerCluster
from stageline.cluster.docker_image import stale_image
from stageline.cluster.docker_parts import PART_LABEL, DockerOptions
from stageline.cluster.docker_running import DockerRunning
from stageline.errors import RunFailed, VersionMismatch
from stageline.runtime.sources import sources
from stageline.testing import uniform_plan

PLAN = uniform_plan(1, service_ns=1, latency_ns=1, kv_budget_bytes=100, kv_block_bytes=1)


class Crashing(DockerCluster):
    """Never healthy; Ctrl-C comes while it is removed."""

    def __init__(self, stale: str = "") -> None:
        self.said: list[str] = []
        super().__init__(None, "test", self.said.append)  # type: ignore[arg-type]
        self.removals: list[str] = []
        self.stale = stale

    def members(self) -> dict[str, Any]:
        """There are none yet."""
        return {}

    def _image(self, *_: object) -> str:
        return "image"

    def _stale(self, *_: object) -> str:
        return self.stale

    def _create_missing(self, *_: object) -> None:
        raise RunFailed("router keeps crashing")

    def down(self) -> int:
        """Interrupted the first time."""
        self.removals.append("begun")
        if len(self.removals) == 1:
            raise KeyboardInterrupt
        self.removals.append("done")
        return 0


def test_an_interrupted_removal_is_done_again_and_the_failure_told() -> None:
    cluster = Crashing()
    with pytest.raises(RunFailed, match="keeps crashing"):
        cluster.up(PLAN, DockerOptions(image="x"), None)
    assert cluster.removals == ["begun", "begun", "done"]


def test_a_failure_is_blamed_on_an_image_that_does_not_fit() -> None:
    cluster = Crashing("image x holds another Stageline; rebuild it")
    with pytest.raises(VersionMismatch, match=r"holds another Stageline; rebuild it \(router keeps crashing\)"):
        cluster.up(PLAN, DockerOptions(image="x"), None)
    assert cluster.said[0] == "image x holds another Stageline; rebuild it"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (sources(), ""),
        ("0123456789abcdef", "image x holds another Stageline (sources 0123456789abcdef) than this command"),
        (b"/app/bin/python: No module named stageline.runtime.sources", "(sources of an earlier version)"),
        (b"exec: python: not found", ""),
    ],
)
def test_an_image_says_which_stageline_it_holds(said: str | bytes, found: str) -> None:
    def run(image: str, command: list[str], **_: object) -> bytes:
        if isinstance(said, bytes):
            raise ContainerError(None, 1, command, image, said)
        return f"{said}\n".encode()

    client = cast(docker.DockerClient, SimpleNamespace(containers=SimpleNamespace(run=run)))
    stale = stale_image(client, "x", "sha256:0")
    assert (found in stale) if found else (stale == "")
    assert not stale or stale.endswith("docker build -f deploy/Dockerfile -t x .")


def test_what_was_done_is_said_of_the_part() -> None:
    container = SimpleNamespace(labels={PART_LABEL: "stage-01"}, name="test-stage-01", pause=lambda: None)
    cluster = SimpleNamespace(name="test", member={"1": container}.__getitem__)
    assert DockerRunning(cast(DockerCluster, cluster)).act("pause", "1") == "stage-01"
