"""A plan as a compose file: a service per stage, a router, Prometheus, Grafana, the load client and the CLI."""

from dataclasses import dataclass

from stageline.cluster import containers
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

PROMETHEUS_IMAGE = "prom/prometheus:v2.53.3"
GRAFANA_IMAGE = "grafana/grafana:11.4.0"
_NO_NEW_PRIVILEGES = "no-new-privileges:true"
_CONFINED: dict[str, Yaml] = {"cap_drop": Flow(["ALL"]), "security_opt": Flow([_NO_NEW_PRIVILEGES])}
_CHECK_COST = """\
Checking 60 containers every 10 s takes this much of one core: with bash 12 %, with a TCP connect by Python 25 %,
with a gRPC check by Python 75 %."""
_WORKLOAD = "poisson:rate=4,input=512,output=64,requests=40"
_HOME = "/var/lib/grafana/dashboards/pipeline.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeOptions:
    """Paths are relative to the folder of the compose file and begin with a dot."""

    name: str
    file: str  # the compose file itself, relative to the checkout
    plan_file: str
    root: str  # the checkout
    command: str  # the command that writes the file
    image: str = containers.IMAGE  # another one is not built from the checkout
    dilation: str = "auto"
    payload: str = "capped"


def compose_file(served: Deployment, options: ComposeOptions) -> str:
    """The text of the file. All its variables have defaults, so `docker compose up` needs no other step."""
    document = Spaced(
        {
            "name": options.name,
            "x-process": Anchor("process", _process(options)),
            "x-settings": Anchor("settings", passed(SHARED_SETTINGS) | UNPUBLISHED),
            "x-stage": Anchor("stage", _stage(served)),
            "services": Spaced(_services(served, options)),
            "configs": {
                "plan": {"file": f"${{STAGELINE_PLAN:-{options.plan_file}}}"},
                "prometheus": {"file": f"{options.root}/deploy/prometheus/prometheus.yml"},
                "prometheus-rules": {"file": f"{options.root}/deploy/prometheus/rules.yml"},
            },
            "networks": {"pipeline": {}},
            "volumes": {"prometheus": {}},
        }
    )
    return _header(served, options) + emit(document)


def _header(served: Deployment, options: ComposeOptions) -> str:
    which = "" if options.file == "docker-compose.yml" else f" -f {options.file}"
    return (
        f"# {containers.served_text(served)}, a router, Prometheus and Grafana.\n"
        f"#   docker compose{which} up\n"
        f"#   docker compose{which} run --rm cli plan kimi-k3 wse-3t\n"
        f"#   docker compose{which} --profile load run --rm load\n"
        "# Another plan of as many stages: STAGELINE_PLAN=./plan.json. Written by\n"
        f"#   {options.command}\n"
    )


def _process(options: ComposeOptions) -> dict[str, Yaml]:
    built: dict[str, Yaml] = {
        "image": f"stageline:${{STAGELINE_TAG:-{containers.IMAGE.partition(':')[2]}}}",
        "pull_policy": Note("The router's build makes the image.", "never"),
    }
    other: dict[str, Yaml] = {"image": options.image, "pull_policy": "missing"}
    return {
        **(built if options.image == containers.IMAGE else other),
        "read_only": True,
        "tmpfs": Flow(["/tmp"]),
        **_CONFINED,
        "restart": "unless-stopped",
        "stop_grace_period": "15s",
        "networks": Flow(["pipeline"]),
    }


def _stage(served: Deployment) -> dict[str, Yaml]:
    stages: dict[str, Yaml] = {
        "aliases": Note("Resolves to all of them: how Prometheus finds its targets.", Flow(["stages"]))
    }
    return {
        "<<": Alias("process"),
        "command": Flow(containers.STAGE_COMMAND),
        "networks": {"pipeline": stages},
        "healthcheck": Note(_CHECK_COST, _check(containers.STAGE_CHECK, containers.check_interval_s(served))),
    }


def _check(command: tuple[str, ...], interval_s: int) -> dict[str, Yaml]:
    """From version 25 on, Docker checks every second while a container starts."""
    return healthcheck(command, interval_s) | {"start_interval": "1s"}


def _services(served: Deployment, options: ComposeOptions) -> dict[str, Yaml]:
    services = {containers.ROUTER: _router(served, options), **stage_services(served)}
    services |= {"prometheus": _prometheus(), "grafana": _grafana(options)}
    return services | {"load": _load(), "cli": _cli(options)}


def _router(served: Deployment, options: ComposeOptions) -> Yaml:
    healthy = _check(containers.ROUTER_CHECK, 10 if containers.check_interval_s(served) > 5 else 5)
    return {
        "<<": Alias("process"),
        **_build(options),
        "command": Flow(containers.ROUTER_COMMAND),
        "environment": router_environment(served, dilation=options.dilation, payload=options.payload, host="127.0.0.1"),
        "configs": [{"source": "plan", "target": containers.PLAN_FILE}],
        "ports": [
            _published("STAGELINE_HTTP_PORT", containers.HTTP_PORT),
            _published("STAGELINE_PORT", containers.GRPC_PORT),
        ],
        "depends_on": Note(
            "Started with it; it does not wait for them to be healthy.",
            Flow([server.name for server in containers.stage_servers(served)]),
        ),
        "healthcheck": Note("Healthy means that every stage is.", healthy),
    }


def _build(options: ComposeOptions) -> dict[str, Yaml]:
    if options.image != containers.IMAGE:
        return {}
    return {"build": {"context": options.root, "dockerfile": "deploy/Dockerfile"}, "pull_policy": "build"}


def _published(variable: str, port: int) -> str:
    return f"127.0.0.1:${{{variable}:-{port}}}:{port}"


def _prometheus() -> Yaml:
    arguments = ["config.file=/etc/prometheus/prometheus.yml", "storage.tsdb.path=/prometheus"]
    arguments.append("storage.tsdb.retention.time=2d")
    return {
        "image": PROMETHEUS_IMAGE,
        "pull_policy": "missing",
        "restart": "unless-stopped",
        "read_only": True,
        **_CONFINED,
        "command": [f"--{argument}" for argument in arguments],
        "configs": [
            {"source": "prometheus", "target": "/etc/prometheus/prometheus.yml"},
            {"source": "prometheus-rules", "target": "/etc/prometheus/rules.yml"},
        ],
        "volumes": ["prometheus:/prometheus"],
        "networks": Flow(["pipeline"]),
        "ports": [_published("PROMETHEUS_PORT", 9090)],
        "healthcheck": {
            "test": Flow(["CMD", "wget", "-q", "--spider", "http://127.0.0.1:9090/-/ready"]),
            "interval": "10s",
            "timeout": "3s",
            "start_period": "30s",
        },
    }


def _grafana(options: ComposeOptions) -> Yaml:
    """Anonymous viewing: the port is published on loopback only."""
    return {
        "image": GRAFANA_IMAGE,
        "pull_policy": "missing",
        "restart": "unless-stopped",
        **_CONFINED,
        "environment": {
            "GF_AUTH_ANONYMOUS_ENABLED": "true",
            "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": _HOME,
        },
        "volumes": [
            f"{options.root}/deploy/grafana/provisioning:/etc/grafana/provisioning:ro",
            f"{options.root}/deploy/grafana/dashboards:/var/lib/grafana/dashboards:ro",
        ],
        "networks": Flow(["pipeline"]),
        "ports": [_published("GRAFANA_PORT", 3000)],
        "depends_on": Flow(["prometheus"]),
    }


def _load() -> Yaml:
    return {
        "<<": Alias("process"),
        "profiles": Flow(["load"]),
        "restart": "no",
        "entrypoint": Flow(["stageline", "load", "--url", f"http://{containers.ROUTER}:{containers.HTTP_PORT}"]),
        "command": Flow(
            ["--workload", "${STAGELINE_WORKLOAD:-poisson:rate=4,input=512,output=64}", "--requests", "40"]
        ),
        "depends_on": {containers.ROUTER: {"condition": "service_healthy"}},
    }


def _cli(options: ComposeOptions) -> Yaml:
    return {
        "<<": Alias("process"),
        **_build(options),
        "profiles": Flow(["cli"]),
        "restart": "no",
        "user": Note(
            "Writes files into the folder as this user: STAGELINE_USER=$(id -u):$(id -g) where yours is another.",
            "${STAGELINE_USER:-1000:1000}",
        ),
        "entrypoint": Flow(["stageline"]),
        "command": Flow(["--help"]),
        "volumes": [f"{options.root}:/data"],
    }
