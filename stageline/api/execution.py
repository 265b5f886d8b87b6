"""Chooses the engine that carries out a run: in-process or cluster."""

from collections.abc import Callable
from typing import Literal

import msgspec

from stageline.engine.fleet import Fleet
from stageline.engine.settings import Scheduling
from stageline.engine.types import MemberObserver, Observer, RunTotals, StageObserver, Workload
from stageline.plan.schema import Plan
from stageline.runtime import deadline
from stageline.wire.tls import TlsFiles

EngineName = Literal["inprocess", "cluster"]


class WorkloadText(msgspec.Struct, frozen=True, kw_only=True):
    """A workload as it was asked for, from which a router makes a reactive one itself (`wire`'s WorkloadSpec)."""

    text: str
    seed: int
    rate_scale: str
    requests: int  # 0: no limit
    skip_bad_rows: bool = False
    sort: bool = False


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that carries out a run. No address: local processes, started for this run and stopped after it."""

    address: str | None = None  # of the router's gRPC: HOST:PORT, or grpcs://HOST:PORT for TLS
    tls: TlsFiles = TlsFiles()
    api_key: str = ""
    retries: int = 0  # how often the run may be done again after the death of a server
    stage_deadline: str = deadline.DEFAULT  # of local processes: how long a stage may owe an answer


def execute(
    plan: Plan | Fleet,
    scheduling: Scheduling,
    workload: Workload,
    *,
    seed: int,
    observer: Observer,
    stage_observer: StageObserver | None = None,
    members: MemberObserver | None = None,
    paranoid: bool = False,
    cluster: Cluster | None = None,
    text: WorkloadText | None = None,
    again: Callable[[str], None] = lambda _: None,
) -> RunTotals:
    """Run to the end, in this process unless a cluster is given. Both give the same records, in the same order per
    request. A fleet has its own settings in place of `scheduling`. `again` is called whenever the run is done again,
    with why it ended. A cluster tells only `observer`, and `paranoid` is for runs in this process: a SecondRun has
    both.

    Raises the StagelineError that the run ends with.
    """
    if cluster is not None:
        return _on_cluster(cluster, plan, scheduling, workload, seed=seed, observer=observer, text=text, again=again)
    from stageline.engine import inprocess  # noqa: PLC0415  (other engines must not pay for loading it)
    from stageline.engine.route import Route  # noqa: PLC0415
    from stageline.engine.served import one_pool, serve  # noqa: PLC0415

    return inprocess.run_fleet(
        serve(plan) if isinstance(plan, Fleet) else one_pool(Route(plan), scheduling),
        workload,
        seed=seed,
        observer=observer,
        stage_observer=stage_observer,
        members=members,
        paranoid=paranoid,
    )


def _on_cluster(
    cluster: Cluster,
    plan: Plan | Fleet,
    scheduling: Scheduling,
    workload: Workload,
    *,
    seed: int,
    observer: Observer,
    text: WorkloadText | None,
    again: Callable[[str], None],
) -> RunTotals:
    from stageline.api.fleet_running import check_no_code  # noqa: PLC0415
    from stageline.cluster.attempts import Retry  # noqa: PLC0415
    from stageline.cluster.client_run import run_on_cluster  # noqa: PLC0415  (grpc is slow to load)
    from stageline.wire.router_client import WorkloadSpec  # noqa: PLC0415

    spec = None
    if text and workload.reactive:
        spec = WorkloadSpec(text=text.text, seed=text.seed, rate_scale=text.rate_scale, requests=text.requests)
    if isinstance(plan, Fleet):
        check_no_code(plan)
    return run_on_cluster(
        plan,
        None if isinstance(plan, Fleet) else scheduling,
        workload,
        seed=seed,
        observer=observer,
        address=cluster.address,
        tls=cluster.tls,
        api_key=cluster.api_key,
        spec=spec,
        stage_deadline=cluster.stage_deadline,
        retry=Retry(retries=cluster.retries, again=again),
    )
