"""What a plan did to a run of it: each rule finds one trait of the plan, what it cost, and what can move it.

A rule reads the plan and what its stages did. Sizes of model and device come from the catalogue: rules that need them
skip a model or device that is not in it. `stageline/plan/advice.py` judges a plan before any run.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stageline.catalog.loader import Catalog
from stageline.engine.causes import CAUSE
from stageline.engine.types import StageRecord
from stageline.errors import StagelineError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan import findings
from stageline.plan.fit import SMALLER_WEIGHTS
from stageline.plan.schema import Plan
from stageline.report.idle import cause_shares, share_with_work
from stageline.report.run_costs import collective_share, in_flight
from stageline.report.summary import Advice, Summary
from stageline.units import NS_PER_S, figure_text

GROUP_SHARE = 0.10  # of a token's trip: collectives across nodes
LIMITING = 0.5  # share of the window that the busiest stage is busy when it holds the pipeline back
KV_SHORT = 0.10  # share of the stages' time without KV room, or preemptions per request
KV_FULL, QUEUES = 0.85, 0.5  # peak of the fullest ledger; share of its time that a median request queues
AS_SHIPPED = 0.98  # weights of at least this share of the catalogue's bytes are the shipped ones


class PlannedRun(NamedTuple):
    """A run with its plan's model and device; None: not in the catalogue."""

    plan: Plan
    summary: Summary
    stages: Sequence[StageRecord]
    spec: ModelSpec | None
    device: Device | None

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return sum(stage.devices for stage in self.plan.stages)

    @property
    def device_bytes(self) -> int:
        """Usable memory of one device; 0 if the plan does not say."""
        first = self.plan.stages[0]
        return first.memory_bytes // first.devices

    @property
    def held_bytes(self) -> int:
        """Weights of one replica, the peaks of its KV ledgers, and the largest reserve of a stage for activations."""
        peaks: dict[int, int] = {}
        for s in self.stages:
            peaks[s.replica] = peaks.get(s.replica, 0) + s.kv_peak_bytes
        reserve = max(s.memory_bytes - s.weight_bytes - s.kv_budget_bytes for s in self.plan.stages)
        return sum(s.weight_bytes for s in self.plan.stages) + max(peaks.values(), default=0) + max(0, reserve)

    @property
    def kv_short(self) -> bool:
        """Whether KV limited the run: stages waited for room, requests were preempted, or few requests filled it."""
        if self.kv_blocked or self.preempted > KV_SHORT:
            return True
        queue, whole = self.summary.queue_s.p50, self.summary.e2e_s.p50
        few = in_flight(self.summary) < findings.FEW_REQUESTS * len(self.stages)
        return few and self.summary.kv_peak_ratio >= KV_FULL and bool(queue and whole and queue > QUEUES * whole)

    @property
    def kv_blocked(self) -> bool:
        """Whether stages idled for want of KV room, as a share of the time with requests in the system."""
        shares = cause_shares(self.stages)
        return shares["kv_blocked"] >= KV_SHORT * share_with_work(shares) > 0

    @property
    def preempted(self) -> float:
        """Preemptions per request."""
        return self.summary.preemptions / max(1, self.summary.requests["total"])


def plan_advice(plan: Plan, summary: Summary, stages: Sequence[StageRecord]) -> list[Advice]:
    """One line per mistake; none for a sound plan that is used as intended."""
    catalog = Catalog()
    run = PlannedRun(plan, summary, stages, _model(catalog, plan.model), _device(catalog, plan.device))
    return [line for rule in _RULES if (line := rule(run))]


def _model(catalog: Catalog, name: str) -> ModelSpec | None:
    try:
        return catalog.model(name).spec
    except StagelineError:
        return None


def _device(catalog: Catalog, name: str) -> Device | None:
    try:
        return catalog.device(name).device
    except StagelineError:
        return None


def _needless_split(r: PlannedRun) -> Advice | None:
    if r.devices == 1 or not r.device_bytes or r.held_bytes > r.device_bytes:
        return None
    return Advice(
        findings.split(
            r.plan.device,
            f"the weights and all KV of this run ({_gb(r.held_bytes)} of {_gb(r.device_bytes)})",
            r.devices,
        ),
        "the split (--devices, --tp, --pp) and --replicas; a split shortens a token's trip",
    )


def _replicas_instead_of_split(r: PlannedRun) -> Advice | None:
    """Each replica holds the weights again, in memory that KV could use."""
    copies = r.plan.replicas
    room = copies * sum(stage.kv_budget_bytes for stage in r.plan.stages)
    saved = (copies - 1) * sum(stage.weight_bytes for stage in r.plan.stages)
    if copies == 1 or not saved or room + saved < 2 * room or not r.kv_short:
        return None
    return Advice(
        f"{copies} replicas hold the weights {copies} times and have {_gb(room)} left for KV, which ran out",
        f"--replicas and --devices: one replica over all devices has {_gb(room + saved)} for KV",
    )


def _group_across_nodes(r: PlannedRun) -> Advice | None:
    if r.device is None:
        return None
    inside = r.device.scale_up.devices if r.device.scale_up else 1
    ranks, share = max(stage.devices for stage in r.plan.stages), collective_share(r.plan, r.summary)
    if ranks <= inside or share < GROUP_SHARE:
        return None
    return Advice(
        f"{findings.group_across_nodes(ranks, inside, r.device.name)}: collectives are {share:.0%} of a token's trip",
        "the size of groups (--tp, --ep, --cp) and the number of stages (--pp)",
    )


def _hops_dominate(r: PlannedRun) -> Advice | None:
    token_s, network_ns = r.summary.tpot_s.p50, sum(link.latency_ns for link in r.plan.links[1:])
    seen = findings.hops_dominate(network_ns, token_s * NS_PER_S, "the median time per token") if token_s else ""
    if not seen:
        return None
    return Advice(
        seen,
        "the number of stages (--pp, --devices) and the network (--scale-out, --hop-latency)",
    )


def _unbalanced(r: PlannedRun) -> Advice | None:
    busy = [sum(s.busy_ns for s in r.stages if s.stage == i) for i in range(len(r.plan.stages))]
    window = sum(s.window_ns for s in r.stages if s.stage == 0)
    worst, seen = findings.busiest(busy, [stage.name for stage in r.plan.stages])
    if not seen or busy[worst] < LIMITING * window:
        return None
    return Advice(f"{seen} and holds the pipeline back", "the cut of the layers (--placement, --devices, --pp, --tp)")


def _kv_binds(r: PlannedRun) -> Advice | None:
    if not r.kv_short:
        return None
    s, share = r.summary, cause_shares(r.stages)["kv_blocked"]
    where = "" if s.binding_stage is None else f" (stage {s.binding_stage} binds)"
    waited = f"room is missing for {share:.0%} of the stages' time{where}" if r.kv_blocked else "runs out"
    mfu = "" if s.utilisation is None else f", when the devices reach {s.utilisation.mfu:.0%} of their FLOPs"
    served = in_flight(s)
    return Advice(
        f"KV {waited} with {figure_text(served)} requests served at once, "
        f"{figure_text(served / len(r.stages))} per stage{mfu}",
        CAUSE["kv_blocked"].moved_by,
    )


def _nominal_layers(r: PlannedRun) -> Advice | None:
    if r.plan.info.get("layer_bytes") != "nominal" or r.spec is None:
        return None
    nominal = r.plan.stages[-1].weight_bytes // max(1, len(r.plan.stages[-1].layers))
    real = [r.spec.layer_bytes(i) for i in range(len(r.spec.layers))]
    seen = findings.nominal_layers(nominal, real)
    return Advice(f"{seen}: its KV room is wrong", "the plan's --layer-bytes") if seen else None


def _smaller_weights(r: PlannedRun) -> Advice | None:
    """Only where the run needs its devices for their memory, and the weights are the shipped ones."""
    weights = sum(stage.weight_bytes for stage in r.plan.stages)
    if r.spec is None or not r.device_bytes or weights < AS_SHIPPED * r.spec.weight_bytes():
        return None
    if -(-r.held_bytes // r.device_bytes) < r.devices or r.devices == 1:
        return None
    for name in SMALLER_WEIGHTS:
        smaller = weights * r.spec.requantised(name).weight_bytes() // r.spec.weight_bytes()
        need = -(-(r.held_bytes - weights + smaller) // r.device_bytes)
        if need < r.devices:
            seen = findings.smaller_weights(name, " and the KV that this run held", need, r.devices)
            return Advice(seen, "the plan's --weights")
    return None


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"


_RULES: tuple[Callable[[PlannedRun], Advice | None], ...] = (
    _needless_split,
    _replicas_instead_of_split,
    _group_across_nodes,
    _hops_dominate,
    _unbalanced,
    _kv_binds,
    _nominal_layers,
    _smaller_weights,
)
