"""`stageline render`: a plan as files for other launchers."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from stageline.api.files import write_file
from stageline.cluster.compose import ComposeOptions, compose_file
from stageline.cluster.containers import IMAGE
from stageline.cluster.kubernetes import KubernetesOptions, manifests
from stageline.cluster.swarm import stack_file
from stageline.errors import UsageError
from stageline.runtime.plans import read_plan_file

render_app = App(name="render", help="Write a plan as a compose file, a swarm stack or Kubernetes manifests.")
_OBJECT_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_DOCKERFILE = Path("deploy") / "Dockerfile"

PlanPath = Annotated[Path, Parameter(help="Plan file, made by stageline plan -o.")]


@render_app.command
def compose(
    plan: PlanPath,
    *,
    output: Annotated[Path, Parameter(name=("-o", "--output"), help="Compose file to write.")],
    name: Annotated[str, Parameter(help="Name of the compose project.")] = "stageline",
    dilation: Annotated[
        str, Parameter(help="Wall time per emulated time of live sessions: a factor, or auto.")
    ] = "auto",
) -> None:
    """Write the compose file of a plan: one service per stage, a router, Prometheus and Grafana.

    Paths in it are relative, so the file must lie in a checkout, whose Dockerfile and dashboards it uses.
    """
    loaded = read_plan_file(plan)
    folder = output.absolute().parent
    root = checkout(folder, f"-o {output}")
    file, plan_file = os.path.relpath(output.absolute(), root), os.path.relpath(plan.absolute(), root)
    extra = [f"--name={name}"] * (name != "stageline") + [f"--dilation={dilation}"] * (dilation != "auto")
    options = ComposeOptions(
        name=name,
        file=file,
        plan_file=_dotted(os.path.relpath(plan.absolute(), folder)),
        root=_dotted(os.path.relpath(root, folder)),
        command=shlex.join(["stageline", "render", "compose", plan_file, *extra, "-o", file]),
        dilation=dilation,
    )
    write_file(output, compose_file(loaded, options).encode())


@render_app.command
def k8s(
    plan: PlanPath,
    *,
    output: Annotated[Path | None, Parameter(name=("-o", "--output"), help="File to write; default: stdout.")] = None,
    name: Annotated[str, Parameter(help="Prefix of every object's name.")] = "stageline",
    image: Annotated[str, Parameter(help="Image that the nodes can pull.")] = IMAGE,
    dilation: Annotated[
        str, Parameter(help="Wall time per emulated time of live sessions: a factor, or auto.")
    ] = "auto",
    payload: Annotated[
        Literal["size", "capped", "full"], Parameter(help="How many activation bytes are really sent.")
    ] = "capped",
    tls: Annotated[
        bool, Parameter(negative="", help="The servers will have certificates: use probes that work with TLS.")
    ] = False,
) -> None:
    """Write Kubernetes manifests of a plan, for clusters without Helm; the chart in deploy/helm makes the same ones."""
    if not _OBJECT_NAME.fullmatch(name):
        raise UsageError(f"--name {name}: object names are a letter, then letters, digits and dashes, 40 at most")
    loaded = read_plan_file(plan)
    options = KubernetesOptions(name=name, image=image, dilation=dilation, payload=payload, tls=tls)
    text = manifests(loaded, plan.read_text(), options)
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text.encode())


@render_app.command
def swarm(
    plan: PlanPath, *, output: Annotated[Path, Parameter(name=("-o", "--output"), help="Stack file to write.")]
) -> None:
    """Write the stack file of a plan for Docker Swarm, inside a checkout."""
    loaded = read_plan_file(plan)
    folder = output.absolute().parent
    root = checkout(folder, f"-o {output}")
    file, plan_file = os.path.relpath(output.absolute(), root), os.path.relpath(plan.absolute(), root)
    text = stack_file(
        loaded,
        plan_file=_dotted(os.path.relpath(plan.absolute(), folder)),
        prometheus_file=_dotted(os.path.relpath(root / "deploy/prometheus/prometheus.yml", folder)),
        command=shlex.join(["stageline", "render", "swarm", plan_file, "-o", file]),
    )
    write_file(output, text.encode())


def checkout(folder: Path, what: str) -> Path:
    """The nearest folder at or above `folder` that holds the Dockerfile. Raises UsageError."""
    for candidate in (folder, *folder.parents):
        if (candidate / _DOCKERFILE).is_file():
            return candidate
    raise UsageError(
        f"{what}: no {_DOCKERFILE} at or above {folder}; write it inside a checkout of Stageline, or "
        "use stageline render k8s, which needs none"
    )


def _dotted(path: str) -> str:
    """A path that begins with a dot; compose would take another one for a name."""
    return path if path.startswith(".") else f"./{path}"
