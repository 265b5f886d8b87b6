"""What every way of running a cluster in containers shares: names, ports, commands, checks, confinement."""

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
USER = 10001  # of the image; see deploy/Dockerfile

# A connect by bash, not by Python: with many stages the check decides what an idle cluster costs.
STAGE_CHECK = ("bash", "-c", f"</dev/tcp/127.0.0.1/{GRPC_PORT}")
ROUTER_CHECK = ("python", "-m", "router.check")
_MIN_INTERVAL_S = 5
_CHECKS_PER_S = 6


@dataclass(frozen=True, slots=True)
class StageServer:
    """One stage server: the stage's index in the plan, its replica, and the name by which it is found."""

    replica: int
    stage: int
    name: str


def stage_servers(plan: Plan) -> Iterator[StageServer]:
    """All stage servers of a plan, by replica and stage."""
    for replica in range(plan.replicas):
        for stage in range(len(plan.stages)):
            yield StageServer(replica, stage, _pattern(plan).format(stage=stage, replica=replica))


def stage_addresses(plan: Plan) -> str:
    """The router's `--stages` for servers named as `places` names them."""
    return f"{_pattern(plan)}:{GRPC_PORT}"


def check_interval_s(plan: Plan) -> int:
    """Seconds between two health checks of a stage: at most six checks a second in the whole cluster."""
    servers = plan.replicas * len(plan.stages)
    return max(_MIN_INTERVAL_S, -(-servers // _CHECKS_PER_S))


def _pattern(plan: Plan) -> str:
    digits = max(2, len(str(len(plan.stages) - 1)))
    stage = f"stage-{{stage:0{digits}d}}"
    return f"r{{replica}}-{stage}" if plan.replicas > 1 else stage
