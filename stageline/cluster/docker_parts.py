"""The containers of a cluster in Docker, router and stages, as arguments for the Docker SDK."""

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from stageline.cluster import containers
from stageline.runtime.deployment import Deployment
from stageline.units import NS_PER_S

CLUSTER_LABEL = "org.stageline.cluster"
PART_LABEL = "org.stageline.part"
FINGERPRINT_LABEL = "org.stageline.fingerprint"
ALL_STAGES = "stages"  # the host name that resolves to every stage


class DockerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a cluster in Docker. Port 0: any free one; -1: not published. `router`: further router flags."""

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
class ContainerSpec:
    """One container: its name in the cluster, its network aliases, and the arguments that create it."""

    name: str
    aliases: tuple[str, ...]
    settings: dict[str, Any]


def fingerprint(served: Deployment, options: DockerOptions, image_id: str) -> str:
    """A hash of everything that makes up a cluster: a cluster with the same hash need not be created again."""
    text = f"{served.digest} {image_id} {msgspec.json.encode(options, order='sorted').decode()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stage_parts(served: Deployment, options: DockerOptions) -> list[ContainerSpec]:
    """The stage servers, which get the plan from the router."""
    interval_s = containers.check_interval_s(served)
    return [
        ContainerSpec(
            server.name,
            (server.name, ALL_STAGES),
            _confined(options)
            | {
                "command": list(containers.STAGE_COMMAND),
                "environment": _environment(options, STAGE=server.stage, REPLICA=server.replica, PUBLISHED="none"),
                "healthcheck": _check(containers.STAGE_CHECK, interval_s),
            },
        )
        for server in containers.stage_servers(served)
    ]


def router_part(served: Deployment, options: DockerOptions, volume: str) -> ContainerSpec:
    """The router; `volume` holds the plan file."""
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
            STAGES=containers.stage_address_pattern(served),
            ADVERTISE=f"{containers.ROUTER}:{containers.GRPC_PORT}",
            PAYLOAD=options.payload,
            WINDOW=options.window,
            PUBLISHED=",".join(f"{options.publish}:{at or '(any)'}" for at in published.values() if at >= 0) or "none",
            **{name.upper().replace("-", "_"): value for name, value in options.router.items()},
        ),
        "healthcheck": _check(containers.ROUTER_CHECK, 10),
        "volumes": {volume: {"bind": containers.PLAN_FOLDER, "mode": "rw"}},
        "ports": {
            f"{port}/tcp": (options.publish, *((at,) if at else ())) for port, at in published.items() if at >= 0
        },
    }
    return ContainerSpec(containers.ROUTER, (containers.ROUTER,), settings)


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
