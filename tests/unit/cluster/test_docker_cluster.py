"""Removing a cluster of containers, which nothing may keep from its end."""

from typing import Any

import pytest

from stageline.cluster.docker_cluster import DockerCluster
from stageline.cluster.docker_parts import DockerOptions
from stageline.errors import RunFailed
from stageline.testing import uniform_plan

PLAN = uniform_plan(1, service_ns=1, latency_ns=1, kv_budget_bytes=100, kv_block_bytes=1)


class Crashing(DockerCluster):
    """Never healthy; Ctrl-C comes while it is removed."""

    def __init__(self) -> None:
        super().__init__(None, "test", lambda _: None)  # type: ignore[arg-type]
        self.removals: list[str] = []

    def members(self) -> dict[str, Any]:
        """There are none yet."""
        return {}

    def _image(self, *_: object) -> str:
        return "image"

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
