"""Mistakes of planning that a run shows: what each cost in this run, and what to do about it.

Each rests on the plan, on what its stages did, and where sizes of the model or the device are needed on the catalogue;
a model or device that is not in it is passed over.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stageline.catalog.loader import Catalog
from stageline.engine.types import StageRecord
from stageline.errors import StagelineError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.advice import FEW_REQUESTS, HOPS_SHARE, IMBALANCE, NOMINAL_ERROR
from stageline.plan.evenness import Cut, better_cut, evenness
from stageline.plan.fit import SMALLER_WEIGHTS
from stageline.plan.schema import Plan
from stageline.report.figures import cause_shares, collective_share, in_flight, layer_costs
from stageline.report.summary import Advice, Summary

GROUP_SHARE = 0.10  # of a token's trip spent in collectives that leave their node
LIMITING = 0.5  # share of the window from which the busiest stage holds the pipeline back
KV_SHORT = 0.10  # share of the stages' time without KV room, or preemptions per request
KV_FULL, QUEUES = 0.85, 0.5  # peak of the fullest ledger; share of its time that a median request queues
REPACKED = 0.98  # weights may be that much smaller than the catalogue's and still be the shipped ones


class BindingFacts(NamedTuple):
    """A run, and what its plan was made of as far as that is known."""

    plan: Plan
    summary: Summary
    stages: Sequence[StageRecord]
    spec: ModelSpec | None
    device: Device | None

    @property
    def devices(self) -> int:
        """Of one replica."""
        return sum(stage.devices for stage in self.plan.stages)

    @property
    def device_bytes(self) -> int:
        """Usable memory of one device; 0: the plan does not say."""
        first = self.plan.stages[0]
        return first.memory_bytes // first.devices

    @property
    def held_bytes(self) -> int:
        """Weights of one replica, the most KV that one held, stage by stage, and what a stage keeps for activations."""
        peaks: dict[int, int] = {}
        for s in self.stages:
            peaks[s.replica] = peaks.get(s.replica, 0) + s.kv_peak_bytes
        kept = max(s.memory_bytes - s.weight_bytes - s.kv_budget_bytes for s in self.plan.stages)
        return sum(s.weight_bytes for s in self.plan.stages) + max(peaks.values(), default=0) + max(0, kept)

    @property
    def kv_short(self) -> bool:
        """Whether requests waited for KV room or lost it again, or filled the ledgers while few and others queued."""
        if self.kv_blocked or self.preempted > KV_SHORT:
            return True
        queue, whole = self.summary.queue_s.p50, self.summary.e2e_s.p50
        few = in_flight(self.summary) < FEW_REQUESTS * len(self.stages)
        return few and self.summary.kv_peak_ratio >= KV_FULL and bool(queue and whole and queue > QUEUES * whole)

    @property
    def kv_blocked(self) -> bool:
        """Whether stages stood still for want of KV room, of the time with requests in the system."""
        shares = cause_shares(self.stages)
        return shares["kv_blocked"] >= KV_SHORT * (1 - shares["empty"]) > 0

    @property
    def preempted(self) -> float:
        """Preemptions per request."""
        return self.summary.preemptions / max(1, self.summary.requests["total"])


def mistakes(plan: Plan, summary: Summary, stages: Sequence[StageRecord]) -> list[Advice]:
    """One line per mistake; none for a sound plan that is used as it was meant."""
    shelf = Catalog()
    seen = BindingFacts(plan, summary, stages, _model(shelf, plan.model), _device(shelf, plan.device))
    return [line for rule in RULES if (line := rule(seen))]


def _model(shelf: Catalog, name: str) -> ModelSpec | None:
    try:
        return shelf.model(name).spec
    except StagelineError:
        return None


def _device(shelf: Catalog, name: str) -> Device | None:
    try:
        return shelf.device(name).device
    except StagelineError:
        return None


def _split_without_need(r: BindingFacts) -> Advice | None:
    if r.devices == 1 or not r.device_bytes or r.held_bytes > r.device_bytes:
        return None
    return Advice(
        f"One {r.plan.device} would hold the weights and all KV of this run, {_gb(r.held_bytes)} of "
        f"{_gb(r.device_bytes)}; the plan splits them over {r.devices}",
        f"plan with --devices 1 --replicas {r.devices * r.plan.replicas}, and keep the split only for a lower latency "
        f"per token",
    )


def _replicas_instead_of_split(r: BindingFacts) -> Advice | None:
    """Copies spend memory on weights that KV could have."""
    copies = r.plan.replicas
    room = copies * sum(stage.kv_budget_bytes for stage in r.plan.stages)
    saved = (copies - 1) * sum(stage.weight_bytes for stage in r.plan.stages)
    if copies == 1 or not saved or room + saved < 2 * room or not r.kv_short:
        return None
    return Advice(
        f"{copies} replicas hold the weights {copies} times and have {_gb(room)} left for KV, which ran out",
        f"plan with --devices {copies * r.devices} without --replicas: {_gb(room + saved)} for KV",
    )


def _group_across_nodes(r: BindingFacts) -> Advice | None:
    if r.device is None:
        return None
    inside = r.device.scale_up.devices if r.device.scale_up else 1
    ranks, share = max(stage.devices for stage in r.plan.stages), collective_share(r.plan, r.summary)
    if ranks <= inside or share < GROUP_SHARE:
        return None
    return Advice(
        f"A group of {ranks} devices leaves the fast domain of {inside}: collectives are {share:.0%} of a token's trip",
        f"plan with groups of at most {inside} devices (--tp, --ep, --cp) and more stages (--pp)",
    )


def _hops_dominate(r: BindingFacts) -> Advice | None:
    token_s, network_ns = r.summary.tpot_s.p50, sum(link.latency_ns for link in r.plan.links[1:])
    if not token_s or network_ns < HOPS_SHARE * token_s * 1e9:
        return None
    return Advice(
        f"{network_ns / token_s / 1e9:.0%} of the median time per token is latency of the network "
        f"({network_ns / 1e3:,.1f} of {token_s * 1e6:,.1f} us), which no faster device saves",
        "use fewer stages, or a network with less latency",
    )


def _unbalanced(r: BindingFacts) -> Advice | None:
    busy = [sum(s.busy_ns for s in r.stages if s.stage == i) for i in range(len(r.plan.stages))]
    window = sum(s.window_ns for s in r.stages if s.stage == 0)
    worst, mean = max(range(len(busy)), key=lambda i: busy[i]), sum(busy) / len(busy)
    if not mean or busy[worst] <= IMBALANCE * mean or busy[worst] < LIMITING * window:
        return None
    times, fits = layer_costs(r.plan, r.summary)
    found = better_cut(times, Cut(len(busy), evenness(busy)), fits)
    way_out = "more --tp and fewer stages: no cut into about as many stages is more even"
    if found is not None:
        gain = found.evenness * busy[worst] / mean
        way_out = f"plan with {found.stages} stages cut by time: up to {gain:.2f} times the throughput per device"
    return Advice(f"{r.plan.stages[worst].name} is busy {busy[worst] / mean:.2f} x the mean and holds it back", way_out)


def _kv_binds(r: BindingFacts) -> Advice | None:
    if not r.kv_short:
        return None
    s, share = r.summary, cause_shares(r.stages)["kv_blocked"]
    where = "" if s.binding_stage is None else f" (stage {s.binding_stage} binds)"
    waited = f"room is missing for {share:.0%} of the stages' time{where}" if r.kv_blocked else "runs out"
    mfu = "" if s.utilisation is None else f", when the devices reach {s.utilisation.mfu:.0%} of their FLOPs"
    served = in_flight(s)
    return Advice(
        f"KV {waited} with {served:.3g} requests served at once, {served / len(r.stages):.2g} per stage{mfu}",
        "try --kv grow, or a plan with --kv-cache-dtype fp8 or more devices per replica",
    )


def _nominal_layers(r: BindingFacts) -> Advice | None:
    if r.plan.info.get("layer_bytes") != "nominal" or r.spec is None:
        return None
    taken = r.plan.stages[-1].weight_bytes // max(1, len(r.plan.stages[-1].layers))
    real = [r.spec.layer_bytes(i) for i in range(len(r.spec.layers))]
    worst = max(range(len(real)), key=lambda i: abs(real[i] - taken))
    if not taken or abs(real[worst] / taken - 1) < NOMINAL_ERROR:
        return None
    return Advice(
        f"The plan takes every layer for {_gb(taken)}, but layer {worst} has {_gb(real[worst])} "
        f"({real[worst] / taken - 1:+.0%}), and embedding and head are not placed: its KV room is not what it says",
        "plan with --layer-bytes exact",
    )


def _smaller_weights(r: BindingFacts) -> Advice | None:
    """Only where memory is what the devices are there for, and weights are as shipped."""
    weights = sum(stage.weight_bytes for stage in r.plan.stages)
    if r.spec is None or not r.device_bytes or weights < REPACKED * r.spec.weight_bytes():
        return None
    if -(-r.held_bytes // r.device_bytes) < r.devices or r.devices == 1:
        return None
    for name in SMALLER_WEIGHTS:
        smaller = weights * r.spec.requantised(name).weight_bytes() // r.spec.weight_bytes()
        need = -(-(r.held_bytes - weights + smaller) // r.device_bytes)
        if need < r.devices:
            return Advice(
                f"Weights in {name} and the KV that this run held fit {need} of the {r.devices} devices, by bytes",
                f"plan with --weights {name}",
            )
    return None


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"


RULES: tuple[Callable[[BindingFacts], Advice | None], ...] = (
    _split_without_need,
    _replicas_instead_of_split,
    _group_across_nodes,
    _hops_dominate,
    _unbalanced,
    _kv_binds,
    _nominal_layers,
    _smaller_weights,
)
