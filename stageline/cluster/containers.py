"""What all ways to run a cluster in containers share: names, ports, commands and health checks."""

from collections.abc import Iterator
from dataclasses import dataclass

from stageline.plan.schema import Plan

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


def stage_servers(plan: Plan) -> Iterator[StageServer]:
    """All stage servers of a plan, by replica and stage."""
    for replica in range(plan.replicas):
        for stage in range(len(plan.stages)):
            yield StageServer(replica, stage, _pattern(plan).format(stage=stage, replica=replica))


def stage_address_pattern(plan: Plan) -> str:
    """The router's `--stages` for servers with the names of `stage_servers`."""
    return f"{_pattern(plan)}:{GRPC_PORT}"


def check_interval_s(plan: Plan) -> int:
    """Seconds between health checks of a stage: at least 5, and at most six checks a second in the whole cluster."""
    servers = plan.replicas * len(plan.stages)
    return max(_MIN_INTERVAL_S, -(-servers // _MAX_CHECKS_PER_S))


def _pattern(plan: Plan) -> str:
    digits = max(2, len(str(len(plan.stages) - 1)))
    stage = f"stage-{{stage:0{digits}d}}"
    return f"r{{replica}}-{stage}" if plan.replicas > 1 else stage
