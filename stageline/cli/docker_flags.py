"""The flags of `stageline up` that concern Docker."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.groups import DOCKER
from stageline.cluster.containers import IMAGE
from stageline.errors import UsageError

Name = Annotated[
    str,
    Parameter(
        show_default=False,
        help="Name of the cluster, by which other commands find it (default: stageline in Docker, else local).",
    ),
]
DOCKER_NAME, PUBLISH = "stageline", "127.0.0.1"  # of a cluster without a name, and of its ports


@Parameter(name="*", group=DOCKER)
@dataclass(frozen=True, slots=True, kw_only=True)
class DockerFlags:
    """Where the servers run."""

    docker: Annotated[
        bool, Parameter(negative="", help="Run servers as containers of the Docker daemon that DOCKER_HOST names.")
    ] = False
    detach: Annotated[
        bool, Parameter(name=("--detach", "-d"), negative="", help="Return once the containers are healthy.")
    ] = False
    name: Name = ""
    image: Annotated[str, Parameter(help="Image of the containers; the default is built when missing.")] = IMAGE
    publish: Annotated[str, Parameter(help="Address at which the containers' ports are published.")] = PUBLISH

    def check(self) -> None:
        """Raises UsageError for flags that mean nothing without --docker."""
        given = (
            ("--detach", self.detach),
            ("--image", self.image != IMAGE),
            ("--publish", self.publish != PUBLISH),
        )
        found = [flag for flag, differs in given if differs]
        if found and not self.docker:
            raise UsageError(f"{', '.join(found)}: only for containers: add --docker, or leave it out")
