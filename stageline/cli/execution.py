"""Which engine carries a run out: the seam between `run` and whatever computes it."""

from typing import Literal, TypedDict

from stageline.cli.security_flags import SecurityFlags
from stageline.engine.settings import Scheduling
from stageline.engine.types import MemberObserver, Observer, RunTotals, StageObserver, Workload
from stageline.errors import UsageError
from stageline.plan.schema import Plan


class SpecFields(TypedDict):
    """A synthetic workload as its flags say it; see `stageline.wire.router_client.Spec`."""

    text: str
    seed: int
    rate_scale: str
    requests: int


EngineName = Literal["inprocess", "cluster"]


def execute(
    engine: EngineName,
    plan: Plan,
    scheduling: Scheduling,
    workload: Workload,
    *,
    seed: int,
    observer: Observer,
    stage_observer: StageObserver | None = None,
    members: MemberObserver | None = None,
    paranoid: bool = False,
    cluster: str | None = None,
    security: SecurityFlags = SecurityFlags(),  # noqa: B008  (frozen)
    spec: SpecFields | None = None,
) -> RunTotals:
    """Runs to the end. All engines give the same records, in the same order per request.

    Raises UsageError for what looks inside the stages on a cluster, and the StagelineError that the run ends with.
    """
    if engine == "cluster" or cluster is not None:
        if stage_observer is not None or paranoid:
            raise UsageError("--events, --otlp and --paranoid look inside the stages: use them with --engine inprocess")
        from stageline.cluster import client_run  # noqa: PLC0415  (grpc is slow to load)
        from stageline.wire.router_client import WorkloadSpec  # noqa: PLC0415

        return client_run.run_on_cluster(
            plan,
            scheduling,
            workload,
            seed=seed,
            observer=observer,
            address=cluster,
            tls=security.files(),
            api_key=security.api_key,
            spec=WorkloadSpec(**spec) if spec and workload.reactive else None,
        )
    from stageline.engine import inprocess  # noqa: PLC0415  (other engines must not pay for loading it)

    return inprocess.run(
        plan,
        scheduling,
        workload,
        seed=seed,
        observer=observer,
        stage_observer=stage_observer,
        members=members,
        paranoid=paranoid,
    )
