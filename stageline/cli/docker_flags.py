"""The flags of `stageline up` that concern Docker."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.cluster.containers import IMAGE

Name = Annotated[str, Parameter(help="name of the cluster in Docker; several can run side by side")]
DEFAULT_NAME = "stageline"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DockerFlags:
    """Where the servers run."""

    docker: Annotated[bool, Parameter(negative="", help="as containers of the engine that DOCKER_HOST names")] = False
    detach: Annotated[
        bool, Parameter(name=("--detach", "-d"), negative="", help="with --docker: return once healthy")
    ] = False
    name: Name = DEFAULT_NAME
    image: Annotated[str, Parameter(help="with --docker: the image; the default is built when missing")] = IMAGE
    publish: Annotated[str, Parameter(help="with --docker: address at which ports are published")] = "127.0.0.1"
