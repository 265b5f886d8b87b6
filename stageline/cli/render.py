"""`stageline render`: a plan as files for other launchers."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from stageline.api.files import write_file
from stageline.cli.render_flags import RenderFlags
from stageline.cluster.compose import ComposeOptions, compose_file
from stageline.cluster.kubernetes import KubernetesOptions, manifests
from stageline.cluster.swarm import StackOptions, stack_file
from stageline.errors import BadInput, UsageError
from stageline.runtime.deployment import Deployment, read_deployment

render_app = App(
    name="render", help="Write a plan or a fleet as a compose file, a swarm stack or Kubernetes manifests."
)
_OBJECT_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_DOCKERFILE = Path("deploy") / "Dockerfile"

PlanPath = Annotated[Path, Parameter(help="Plan file, made by stageline plan -o, or by stageline fleet -o.")]


FilePath = Annotated[Path, Parameter(name=("-o", "--output"), help="File to write.")]


@render_app.command
def compose(plan: PlanPath, *, output: FilePath, flags: RenderFlags = RenderFlags()) -> None:  # noqa: B008  (frozen)
    """Write the compose file of a plan: one service per stage, a router, Prometheus and Grafana.

    Paths in it are relative, so the file must lie in a checkout, whose Dockerfile and dashboards it uses.
    """
    loaded = _read(plan)
    place = _Place(plan, output)
    options = ComposeOptions(
        name=flags.name,
        image=flags.image,
        file=place.file,
        plan_file=place.relative(plan.absolute()),
        root=place.relative(place.root),
        command=place.command("compose", flags),
        dilation=flags.dilation,
        payload=flags.payload,
    )
    write_file(output, compose_file(loaded, options).encode())


@render_app.command
def k8s(
    plan: PlanPath,
    *,
    output: Annotated[Path | None, Parameter(name=("-o", "--output"), help="File to write; default: stdout.")] = None,
    tls: Annotated[
        bool, Parameter(negative="", help="The servers will have certificates: use probes that work with TLS.")
    ] = False,
    flags: RenderFlags = RenderFlags(),  # noqa: B008  (frozen)
) -> None:
    """Write Kubernetes manifests of a plan, for clusters without Helm; the chart in deploy/helm makes the same ones."""
    if not _OBJECT_NAME.fullmatch(flags.name):
        raise UsageError(f"--name {flags.name}: object names are a letter, then letters, digits and dashes, 40 at most")
    loaded = _read(plan)
    options = KubernetesOptions(
        name=flags.name, image=flags.image, dilation=flags.dilation, payload=flags.payload, tls=tls
    )
    text = manifests(loaded, plan.read_text(), options)
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text.encode())


@render_app.command
def swarm(plan: PlanPath, *, output: FilePath, flags: RenderFlags = RenderFlags()) -> None:  # noqa: B008  (frozen)
    """Write the stack file of a plan for Docker Swarm, inside a checkout."""
    loaded = _read(plan)
    place = _Place(plan, output)
    options = StackOptions(
        name=flags.name,
        image=flags.image,
        file=place.file,
        plan_file=place.relative(plan.absolute()),
        prometheus_file=place.relative(place.root / "deploy/prometheus/prometheus.yml"),
        command=place.command("swarm", flags),
        dilation=flags.dilation,
        payload=flags.payload,
    )
    write_file(output, stack_file(loaded, options).encode())


def _read(path: Path) -> Deployment:
    """The plan or fleet. Raises BadInput: servers do not read a fleet as people write it."""
    if path.suffix == ".toml":
        hint = f"write it with stageline fleet {path} -o fleet.json, and render that"
        raise BadInput(f"fleet {path}", None, "servers read a fleet in its canonical form only", hint)
    return read_deployment(path)


class _Place:
    """Where in a checkout a file is written. Raises UsageError outside of one."""

    def __init__(self, plan: Path, output: Path) -> None:
        self._folder = output.absolute().parent
        self.root = checkout(self._folder, f"-o {output}")
        self.file = os.path.relpath(output.absolute(), self.root)
        self._plan = os.path.relpath(plan.absolute(), self.root)

    def relative(self, path: Path) -> str:
        """A path as the file names it. It begins with a dot; compose would take another one for a name."""
        path_text = os.path.relpath(path, self._folder)
        return path_text if path_text.startswith(".") else f"./{path_text}"

    def command(self, kind: str, flags: RenderFlags) -> str:
        """What writes the file, given in the checkout."""
        return shlex.join(["stageline", "render", kind, self._plan, *flags.given(), "-o", self.file])


def checkout(folder: Path, what: str) -> Path:
    """The nearest folder at or above `folder` that holds the Dockerfile. Raises UsageError."""
    for candidate in (folder, *folder.parents):
        if (candidate / _DOCKERFILE).is_file():
            return candidate
    raise UsageError(
        f"{what}: no {_DOCKERFILE} at or above {folder}; write it inside a checkout of Stageline, or "
        "use stageline render k8s, which needs none"
    )
