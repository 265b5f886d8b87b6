"""What `stageline top` and the router's page show, from two snapshots of the metrics that dashboards read too."""

import msgspec

from stageline.engine.causes import CAUSES
from stageline.runtime import metric_names as names
from stageline.runtime import vllm_names as vllm
from stageline.runtime.deployment import Deployment
from stageline.runtime.samples import Samples, parse
from stageline.wire.router_client import Status


class StageView(msgspec.Struct, frozen=True, kw_only=True):
    """One stage. Shares are of its emulated time since the last snapshot; empty while none has passed."""

    replica: int
    stage: int
    healthy: bool
    shares: dict[str, float]  # busy and every cause
    kv_ratio: float

    @property
    def known(self) -> bool:
        """Whether any emulated time has passed on it."""
        return any(self.shares.values())


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of a fleet, its replicas together."""

    name: str
    running: int
    waiting: int
    moving_bytes: int  # KV in flight from it or to it
    moving_requests: int
    ports: int  # through which its KV goes; 0: it hands nothing over
    port_ratio: float | None  # of their time since the last snapshot they were busy; None: no time has passed


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of the display."""

    address: str
    title: str
    mode: str
    stages: list[StageView]
    pools: list[PoolView]  # none of a plan alone
    running: int
    waiting: int
    finished: int
    failed: int
    cancelled: int  # their clients left
    requests_per_s: float  # finished, per second of wall time
    tokens_per_s: float  # per second of wall time
    emulated_tokens_per_s: float | None  # per emulated second; None while the clock stands
    emulated_s: float
    speed: float  # emulated seconds per second of wall time
    ttft_s: tuple[float | None, float | None]  # p50, p99
    itl_s: tuple[float | None, float | None]
    in_flight: int
    credits: int
    slip_s: float
    kv_bound_stage: int | None
    trouble: str  # why live requests are not taken or do not get on; empty: they do

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to do; then the clock shows when the last work was done."""
        return not (self.running or self.waiting or self.in_flight or self.speed)


class ClusterSamples(msgspec.Struct, frozen=True):
    """The samples of the router and of all stages at one instant of wall time."""

    at_s: float
    status: Status
    router: Samples
    stages: list[Samples | None]  # None: the stage does not answer


def cluster_samples(status: Status, at_s: float) -> ClusterSamples:
    """From a status that was requested with metrics."""
    stages = [parse(s.metrics) if s.healthy and s.metrics else None for s in status.stages]
    return ClusterSamples(at_s, status, parse(status.metrics), stages)


def view_between(address: str, deployment: Deployment, now: ClusterSamples, before: ClusterSamples | None) -> View:
    """What happened between two snapshots; without an earlier one, since the servers started."""
    router = now.router.since(before.router if before else None)
    old = before.stages if before else [None] * len(now.stages)
    wall_s = now.at_s - before.at_s if before else 0.0
    emulated_s = now.router.total(names.EMULATED.name)
    passed_s = max(0.0, emulated_s - before.router.total(names.EMULATED.name)) if before else 0.0
    tokens = router.total(vllm.GENERATION_TOKENS.name)
    cancelled = int(now.router.total(vllm.SUCCESS.name, finished_reason="abort"))
    states = zip(now.status.stages, now.stages, old, strict=True)
    return View(
        address=address,
        title=_title(deployment),
        mode=_mode(now),
        stages=[_stage(s.replica, s.stage, samples, earlier) for s, samples, earlier in states],
        pools=[_pool(pool.name, now.router, router, passed_s) for pool in deployment.fleet.pools if pool.name],
        running=int(now.router.total(names.RUNNING.name)),
        waiting=int(now.router.total(names.WAITING.name)),
        finished=int(now.router.total(names.FINISHED.name)),
        failed=int(now.router.total(names.FAILED.name)) - cancelled,
        cancelled=cancelled,
        requests_per_s=_rate(router.total(names.FINISHED.name), wall_s),
        tokens_per_s=_rate(tokens, wall_s),
        emulated_tokens_per_s=tokens / passed_s if passed_s else None,
        emulated_s=emulated_s,
        speed=_rate(passed_s, wall_s),
        ttft_s=_pair(router, now.router, names.TTFT.name),
        itl_s=_pair(router, now.router, names.ITL.name),
        in_flight=int(now.router.total(names.IN_FLIGHT.name)),
        credits=int(now.router.total(names.CREDITS.name)),
        slip_s=now.router.total(names.SLIP.name),
        kv_bound_stage=_binding(now.router),
        trouble="" if now.status.session else now.status.trouble,
    )


def _title(deployment: Deployment) -> str:
    """Each pool's model and devices."""
    plans = (pool.route.plan for pool in deployment.fleet.pools)
    return ", ".join(f"{p.model} on {p.replicas * sum(s.devices for s in p.stages)} x {p.device}" for p in plans)


def _mode(now: ClusterSamples) -> str:
    if now.status.session:
        return "run in emulated time"
    if now.status.live:
        return f"live, dilation {now.router.total(names.DILATION.name):g}"
    return "no live session" if now.status.trouble else "idle"


def _stage(replica: int, stage: int, samples: Samples | None, earlier: Samples | None) -> StageView:
    if samples is None:
        return StageView(replica=replica, stage=stage, healthy=False, shares={}, kv_ratio=0)
    passed = samples.since(earlier)
    spent = {"busy": passed.total(names.STAGE_BUSY.name)}
    spent |= {cause: passed.total(names.STAGE_IDLE.name, cause=cause) for cause in CAUSES}
    whole = sum(spent.values())
    budget = samples.total(names.STAGE_KV_BUDGET.name)
    return StageView(
        replica=replica,
        stage=stage,
        healthy=True,
        shares={name: value / whole for name, value in spent.items()} if whole else {},
        kv_ratio=samples.total(names.STAGE_KV_USED.name) / budget if budget else 0,
    )


def _pool(name: str, now: Samples, recent: Samples, passed_s: float) -> PoolView:
    """`recent`: what was added in the last `passed_s` of emulated time."""
    busy_s = [value for labels, value in recent.of(names.PORT_BUSY.name) if labels["pool"] == name]
    return PoolView(
        name=name,
        running=int(now.total(vllm.RUNNING.name, pool=name)),
        waiting=int(now.total(vllm.WAITING.name, pool=name)),
        moving_bytes=int(now.total(names.KV_MOVING.name, pool=name)),
        moving_requests=int(now.total(names.KV_MOVING_REQUESTS.name, pool=name)),
        ports=len(busy_s),
        port_ratio=sum(busy_s) / (passed_s * len(busy_s)) if busy_s and passed_s else None,
    )


def _rate(count: float, wall_s: float) -> float:
    return count / wall_s if wall_s > 0 else 0.0


def _pair(recent: Samples, ever: Samples, name: str) -> tuple[float | None, float | None]:
    """p50 and p99 since the last snapshot, or of all time if there are no newer values."""
    samples = recent if recent.quantile(name, 0.5) is not None else ever
    return samples.quantile(name, 0.5), samples.quantile(name, 0.99)


def _binding(router: Samples) -> int | None:
    refusals: dict[int, float] = {}
    for labels, count in router.of(names.KV_REFUSALS.name):
        refusals[int(labels["stage"])] = refusals.get(int(labels["stage"]), 0) + count
    most = max(refusals, key=lambda s: (refusals[s], -s), default=None)
    return most if most is not None and refusals[most] else None
