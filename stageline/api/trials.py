"""What a search runs: a candidate is a plan and a workload, its trial is the result."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from typing import Any

import msgspec

from stageline.api.fleet_running import settled_fleet
from stageline.api.job import Job
from stageline.api.running import carry_out
from stageline.engine.fleet import Fleet
from stageline.engine.settings import Scheduling
from stageline.errors import StagelineError, UsageError
from stageline.plan.schema import Plan
from stageline.report.measure import ARRIVALS, NOTHING, MeasureWindow
from stageline.report.pools import RunPools
from stageline.report.slo import Slo, parse_slo
from stageline.report.summary import Summary
from stageline.units import NS_PER_S
from stageline.workload import open_workload

FIGURES = "measurement window"  # what rates are of: kept trials whose rates are of something else are run again


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One plan to try; picklable, so that another process can run it."""

    model: str
    device: str
    name: str
    devices: int
    plan: Plan | Fleet
    workload: str
    seed: int
    rate_scale: str
    requests: int | None
    slo: str | None
    scheduling: Scheduling = Scheduling()  # of a plan; the pools of a fleet have their own
    settings: str = ""  # the flags of what a search varies
    window: MeasureWindow = ARRIVALS  # in which rates are measured

    def one_plan(self) -> Plan:
        """The plan, where it is no fleet. Raises UsageError for one."""
        if isinstance(self.plan, Fleet):
            raise UsageError(f"{self.name}: it is a fleet, and no plan alone")
        return self.plan

    def fleet(self) -> Fleet:
        """The fleet. Raises UsageError for a plan alone."""
        if not isinstance(self.plan, Fleet):
            raise UsageError(f"{self.name}: it is a plan alone, and no fleet")
        return self.plan

    def key(self) -> str:
        """Identifies the trial: a digest of everything that decides its result."""
        rest: tuple[object, ...] = (FIGURES, self.workload, self.seed, self.rate_scale, self.requests, self.slo)
        if self.scheduling != Scheduling():
            rest += (msgspec.json.encode(self.scheduling),)
        if self.window != ARRIVALS:
            rest += (msgspec.json.encode(self.window),)
        return hashlib.sha256(self.plan.canonical() + repr(rest).encode()).hexdigest()


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the result. Times in seconds of emulated time; rates are those of the measurement window."""

    key: str
    model: str
    device: str
    name: str
    devices: int
    stages: int
    credits: int
    microbatch: int
    finished: int
    output_tokens_per_s: float
    goodput_requests_per_s: float  # without an SLO: served requests
    attainment: float | None
    slo_met: bool | None
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    bubble_ratio: float
    binding: str
    failure: str | None = None
    cost_per_million_tokens: float | None = None
    offered_requests_per_s: float | None = None  # None: all arrived at once, or waited for replies
    served_requests_per_s: float | None = None
    binds: tuple[str, ...] = ()
    settings: str = ""  # the flags of what the search varies
    requests: int = 0  # that arrived
    microbatches: int = 0
    replicas: int = 1
    e2e_p50_s: float = 0.0
    slo_margin: float | None = None  # least of bound / p99 over the bounds of the objective
    cost_per_hour: float | None = None
    span_s: float | None = None  # of the window
    arrivals_s: float | None = None  # from the first arrival to the last
    attainment_one_lost: float | None = None  # with one replica lost, which `slo_met` then demands, too
    disaggregated: bool = False  # prefill and decode are in pools apart
    only_one_lost: bool = False  # it was run with one replica lost only, which all figures are of: they miss


def run_trial(candidate: Candidate) -> Trial:
    """Run one candidate in this process. A run that fails is a trial that says so."""
    c = candidate
    try:
        workload = open_workload(c.workload, seed=c.seed, rate_scale=c.rate_scale, requests=c.requests)
        slo = parse_slo(c.slo) if c.slo else None
        job = Job(
            plan=settled_fleet(c.plan, workload, c.seed, {}, slo=slo) if isinstance(c.plan, Fleet) else c.plan,
            workload=workload,
            scheduling=msgspec.structs.replace(c.scheduling, hash_block_tokens=workload.hash_block_tokens),
            seed=c.seed,
            slo=slo,
            window=c.window,
            command="stageline search",
        )
        return _trial(c, carry_out(job).summary)
    except StagelineError as error:
        return _failed(c, str(error))


def _binding(summary: Summary, pools: RunPools) -> str:
    """What held throughput back: a full ledger, else the busiest stage."""
    if summary.binding_stage is not None:
        return f"KV of {pools.stage_name(summary.binding_stage)}"
    return pools.stage_name(summary.busiest_stage) if summary.busiest_stage is not None else ""


def _trial(c: Candidate, s: Summary) -> Trial:
    rates = s.measured or NOTHING
    return Trial(
        key=c.key(), model=c.model, device=c.device, name=c.name, devices=c.devices, **_plan_facts(c.plan),
        finished=s.requests.get("finished", 0), output_tokens_per_s=rates.served_output_tokens_per_s,
        goodput_requests_per_s=s.slo.goodput_requests_per_s if s.slo else rates.served_requests_per_s,
        attainment=s.slo.attainment if s.slo else None, slo_met=s.slo.met if s.slo else None,
        ttft_p50_s=s.ttft_s.p50 or 0.0, ttft_p99_s=s.ttft_s.p99 or 0.0,
        tpot_p50_s=s.tpot_s.p50 or 0.0, tpot_p99_s=s.tpot_s.p99 or 0.0,
        bubble_ratio=s.bubble_ratio, binding=_binding(s, RunPools(c.plan)),
        offered_requests_per_s=rates.offered_requests_per_s, served_requests_per_s=rates.served_requests_per_s,
        binds=tuple(line.seen for line in s.binds),
        settings=c.settings, requests=s.requests["total"], e2e_p50_s=s.e2e_s.p50 or 0.0,
        microbatches=s.microbatches,
        slo_margin=_margin(s, parse_slo(c.slo)) if c.slo else None, span_s=rates.span_s,
        arrivals_s=rates.arrivals_s,
    )  # fmt: skip


def _margin(summary: Summary, slo: Slo) -> float:
    """How many times its p99 fits into a bound: above 1, and 99 % of requests keep it. The least of all bounds."""
    pairs = ((slo.ttft_ns, summary.ttft_s.p99), (slo.tpot_ns, summary.tpot_s.p99), (slo.e2e_ns, summary.e2e_s.p99))
    found = [bound / NS_PER_S / p99 for bound, p99 in pairs if bound is not None and p99]
    return min(found, default=0.0)


def _failed(c: Candidate, reason: str) -> Trial:
    return Trial(
        key=c.key(), model=c.model, device=c.device, name=c.name, devices=c.devices, **_plan_facts(c.plan),
        finished=0, output_tokens_per_s=0.0,
        goodput_requests_per_s=0.0, attainment=None, slo_met=None, ttft_p50_s=0.0, ttft_p99_s=0.0, tpot_p50_s=0.0,
        tpot_p99_s=0.0, bubble_ratio=0.0, binding="", failure=reason, settings=c.settings,
    )  # fmt: skip


def _plan_facts(plan: Plan | Fleet) -> dict[str, Any]:
    """What a row says of the plan; of a fleet's, the stages of one replica of each, and the most of the others."""
    pools = RunPools(plan)
    defaults = [pool.plan.defaults for pool in pools.pools]
    return {
        "stages": sum(len(pool.plan.stages) for pool in pools.pools), "replicas": pools.replicas,
        "credits": max(d.credits for d in defaults), "microbatch": max(d.microbatch for d in defaults),
        "disaggregated": isinstance(plan, Fleet),
    }  # fmt: skip


def run_trials(candidates: Sequence[Candidate]) -> Iterator[Trial]:
    """Trials in this process, one after the other."""
    yield from map(run_trial, candidates)


def run_trials_in(pool: Executor, candidates: Sequence[Candidate]) -> Iterator[Trial]:
    """Trials as they finish, in the processes of a pool."""
    for done in as_completed([pool.submit(run_trial, candidate) for candidate in candidates]):
        yield done.result()


RunTrials = Callable[[Sequence[Candidate]], Iterator[Trial]]  # somewhere: here, in processes, on a cluster
