"""What all ways to run a cluster in containers share: names, ports, commands and health checks."""

from collections.abc import Iterator
from dataclasses import dataclass

from stageline.engine.served import ServedPool
from stageline.runtime.deployment import Deployment

IMAGE = "stageline:local"
GRPC_PORT, METRICS_PORT, HTTP_PORT = 50051, 9090, 8000
PLAN_FOLDER = "/etc/stageline"
PLAN_FILE = f"{PLAN_FOLDER}/plan.json"
ROUTER = "router"
ROUTER_COMMAND = ("python", "-m", "router")
STAGE_COMMAND = ("python", "-m", "stage_server")
USER = 10001  # the image's user; see deploy/Dockerfile

# Bash connects, not Python: with many stages the health check is most of the cost of an idle cluster.
STAGE_CHECK = ("bash", "-c", f"</dev/tcp/127.0.0.1/{GRPC_PORT}")
ROUTER_CHECK = ("python", "-m", "router.check")
_MIN_INTERVAL_S = 5
_MAX_CHECKS_PER_S = 6


@dataclass(frozen=True, slots=True)
class StageServer:
    """One stage server: its replica, the stage's index in the plan, and its host name."""

    replica: int
    stage: int
    name: str


def stage_servers(deployment: Deployment) -> Iterator[StageServer]:
    """All stage servers of a plan or a fleet, by replica and stage."""
    pattern = _pattern(deployment)
    for replica, stage in deployment.stages:
        yield StageServer(replica, stage, pattern.format(stage=stage, replica=replica))


def stage_address_pattern(deployment: Deployment) -> str:
    """The router's `--stages` for servers with the names of `stage_servers`."""
    return f"{_pattern(deployment)}:{GRPC_PORT}"


def served_text(deployment: Deployment) -> str:
    """Such as "llama-3.1-70b on h100-sxm: 4 stages, 2 replicas"; of every pool in a fleet."""
    return "; ".join(_pool_text(pool) for pool in deployment.fleet.pools)


def _pool_text(pool: ServedPool) -> str:
    plan = pool.route.plan
    name = f"{pool.name}: " if pool.name else ""
    replicas = f", {plan.replicas} replicas" if plan.replicas > 1 else ""
    return f"{name}{plan.model} on {plan.device}: {len(plan.stages)} stages{replicas}"


def check_interval_s(deployment: Deployment) -> int:
    """Seconds between health checks of a stage: at least 5, and at most six checks a second in the whole cluster."""
    servers = sum(1 for _ in deployment.stages)
    return max(_MIN_INTERVAL_S, -(-servers // _MAX_CHECKS_PER_S))


def _pattern(deployment: Deployment) -> str:
    most = max(len(pool.route.plan.stages) for pool in deployment.fleet.pools)
    stage = f"stage-{{stage:0{max(2, len(str(most - 1)))}d}}"
    return f"r{{replica}}-{stage}" if deployment.replicas > 1 else stage
