"""What a cluster in Docker consists of: the router's and the stages' containers, as arguments of the SDK."""

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from stageline.cluster import containers
from stageline.plan.schema import Plan
from stageline.units import NS_PER_S

CLUSTER_LABEL = "org.stageline.cluster"
PART_LABEL = "org.stageline.part"
FINGERPRINT_LABEL = "org.stageline.fingerprint"
ALL_STAGES = "stages"  # the name that resolves to every stage


class DockerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is started in Docker. Published ports 0: any free one, -1: none. `router` holds its own flags."""

    image: str = containers.IMAGE
    publish: str = "127.0.0.1"
    http_port: int = containers.HTTP_PORT
    grpc_port: int = containers.GRPC_PORT
    metrics_port: int = containers.METRICS_PORT
    payload: str = "capped"
    window: int = 0
    log_level: str = "warning"
    log_format: str = "text"
    router: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """One container: its name in the cluster, its aliases on the network, and what `create_container` takes."""

    name: str
    aliases: tuple[str, ...]
    settings: dict[str, Any]


def fingerprint(plan: Plan, options: DockerOptions, image_id: str) -> str:
    """The same for two clusters that are the same: what is there already need not be made again."""
    text = f"{plan.digest()} {image_id} {msgspec.json.encode(options, order='sorted').decode()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stage_parts(plan: Plan, options: DockerOptions) -> list[Part]:
    """The stage servers; the router brings them the plan."""
    interval_s = containers.check_interval_s(plan)
    return [
        Part(
            place.name,
            (place.name, ALL_STAGES),
            _confined(options)
            | {
                "command": list(containers.STAGE_COMMAND),
                "environment": _environment(options, STAGE=place.stage, REPLICA=place.replica),
                "healthcheck": _check(containers.STAGE_CHECK, interval_s),
            },
        )
        for place in containers.stage_servers(plan)
    ]


def router_part(plan: Plan, options: DockerOptions, volume: str) -> Part:
    """The router; the volume holds the plan file."""
    published = {
        containers.HTTP_PORT: options.http_port,
        containers.GRPC_PORT: options.grpc_port,
        containers.METRICS_PORT: options.metrics_port,
    }
    settings = _confined(options) | {
        "command": list(containers.ROUTER_COMMAND),
        "environment": _environment(
            options,
            PLAN=containers.PLAN_FILE,
            STAGES=containers.stage_addresses(plan),
            ADVERTISE=f"{containers.ROUTER}:{containers.GRPC_PORT}",
            PAYLOAD=options.payload,
            WINDOW=options.window,
            **{name.upper().replace("-", "_"): value for name, value in options.router.items()},
        ),
        "healthcheck": _check(containers.ROUTER_CHECK, 10),
        "volumes": {volume: {"bind": containers.PLAN_FOLDER, "mode": "rw"}},
        "ports": {
            f"{port}/tcp": (options.publish, *((at,) if at else ())) for port, at in published.items() if at >= 0
        },
    }
    return Part(containers.ROUTER, (containers.ROUTER,), settings)


def _confined(options: DockerOptions) -> dict[str, Any]:
    return {
        "image": options.image,
        "read_only": True,
        "tmpfs": {"/tmp": ""},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart_policy": {"Name": "unless-stopped"},
        "detach": True,
    }


def _environment(options: DockerOptions, **settings: object) -> dict[str, str]:
    common = {"LOG_LEVEL": options.log_level, "LOG_FORMAT": options.log_format}
    return {f"STAGELINE_{name}": str(value) for name, value in (common | settings).items()}


def _check(command: tuple[str, ...], interval_s: int) -> dict[str, Any]:
    return {
        "test": ["CMD", *command],
        "interval": interval_s * NS_PER_S,
        "timeout": 5 * NS_PER_S,
        "start_period": 120 * NS_PER_S,
    }
