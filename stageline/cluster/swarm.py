"""A plan as a stack for Docker Swarm: a service per stage, a router, Prometheus."""

from dataclasses import dataclass

from stageline.cluster import containers
from stageline.cluster.compose import PROMETHEUS_IMAGE
from stageline.cluster.stack import (
    SHARED_SETTINGS,
    UNPUBLISHED,
    healthcheck,
    passed,
    router_environment,
    stage_services,
)
from stageline.cluster.yaml_text import Alias, Anchor, Flow, Note, Spaced, Yaml, emit
from stageline.runtime.deployment import Deployment

_DIGITS = 12  # of the digest, in the name of a config: Swarm configs are immutable, so each plan has its own


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """Paths are relative to the folder of the stack file and begin with a dot."""

    name: str
    file: str  # the stack file itself, relative to the checkout
    plan_file: str
    prometheus_file: str
    command: str  # the command that writes the file
    image: str = containers.IMAGE
    dilation: str = "auto"
    payload: str = "capped"


def stack_file(served: Deployment, options: StackOptions) -> str:
    """The text of the stack."""
    document = Spaced(
        {
            "version": "3.8",
            "x-process": Anchor("process", _process(options)),
            "x-settings": Anchor("settings", passed(SHARED_SETTINGS) | UNPUBLISHED),
            "x-stage": Anchor("stage", _stage(served)),
            "services": Spaced(_services(served, options)),
            "configs": {
                "plan": {"name": f"stageline-plan-{served.digest[:_DIGITS]}", "file": options.plan_file},
                "prometheus": {"file": options.prometheus_file},
                "prometheus-rules": {"file": options.prometheus_file.replace("prometheus.yml", "rules.yml")},
            },
            "networks": {"pipeline": {"driver": "overlay"}},
            "volumes": {"prometheus": {}},
        }
    )
    return (
        f"# {containers.served_text(served)} as a stack for Docker Swarm.\n"
        f"#   docker stack deploy --compose-file {options.file} {options.name}\n"
        "# The image must be on every node: push it to a registry of yours and set STAGELINE_IMAGE. Written by\n"
        f"#   {options.command}\n"
    ) + emit(document)


def _process(options: StackOptions) -> dict[str, Yaml]:
    return {
        "image": f"${{STAGELINE_IMAGE:-{options.image}}}",
        "read_only": True,
        "cap_drop": Flow(["ALL"]),
        "volumes": Flow([{"type": "tmpfs", "target": "/tmp"}]),
        "stop_grace_period": "15s",
        "networks": Flow(["pipeline"]),
    }


def _deploy() -> dict[str, Yaml]:
    return {
        "endpoint_mode": Note("Names resolve to tasks: no virtual address stands between stages.", "dnsrr"),
        "restart_policy": {"condition": "any", "delay": "1s"},
    }


def _stage(served: Deployment) -> dict[str, Yaml]:
    return {
        "<<": Alias("process"),
        "command": Flow(containers.STAGE_COMMAND),
        "networks": {"pipeline": {"aliases": Flow(["stages"])}},
        "deploy": _deploy() | {"resources": {"limits": {"memory": "256M"}}},
        "healthcheck": healthcheck(containers.STAGE_CHECK, containers.check_interval_s(served)),
    }


def _services(served: Deployment, options: StackOptions) -> dict[str, Yaml]:
    return {containers.ROUTER: _router(served, options), **stage_services(served), "prometheus": _prometheus()}


def _router(served: Deployment, options: StackOptions) -> Yaml:
    return {
        "<<": Alias("process"),
        "command": Flow(containers.ROUTER_COMMAND),
        "environment": router_environment(served, dilation=options.dilation, payload=options.payload, host="0.0.0.0"),
        "configs": [{"source": "plan", "target": containers.PLAN_FILE}],
        "ports": [
            _published("STAGELINE_HTTP_PORT", containers.HTTP_PORT),
            _published("STAGELINE_PORT", containers.GRPC_PORT),
        ],
        "deploy": _deploy(),
        "healthcheck": Note(
            "Swarm hides a task from the others until it is healthy, and stages send results to the router: so this "
            "asks\nwhether it listens. Whether every stage serves, /ready and the gRPC health service say.",
            healthcheck(containers.STAGE_CHECK, 5),
        ),
    }


def _prometheus() -> Yaml:
    return {
        "image": PROMETHEUS_IMAGE,
        "command": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"],
        "configs": [
            {"source": "prometheus", "target": "/etc/prometheus/prometheus.yml"},
            {"source": "prometheus-rules", "target": "/etc/prometheus/rules.yml"},
        ],
        "volumes": ["prometheus:/prometheus"],
        "networks": Flow(["pipeline"]),
        "ports": [_published("PROMETHEUS_PORT", 9090)],
        "deploy": _deploy(),
    }


def _published(variable: str, port: int) -> Yaml:
    """Publishes a port on the node where the task runs."""
    return {"target": port, "published": f"${{{variable}:-{port}}}", "mode": "host"}
