"""summary.json: a run in one page of figures."""

from collections.abc import Iterable

import msgspec

from stageline.engine.types import RunTotals, StageRecord
from stageline.report.distributions import Latency
from stageline.report.hand_overs import HandOverSummary
from stageline.report.idle import run_bubble_ratio
from stageline.report.measure import MeasuredRates
from stageline.report.pool_summary import PoolSummary, PoolTallies
from stageline.report.pools import SEVERAL, RunPools
from stageline.report.prefix import PrefixSummary, prefix_summary
from stageline.report.rerun import Rerun
from stageline.report.settings import Facts
from stageline.report.slo import SloResult
from stageline.report.speculation import SpeculationSummary, speculation_summary
from stageline.report.statistics import Statistics
from stageline.report.tiers import TierSummary, tier_summaries
from stageline.report.utilisation import Utilisation, utilisation
from stageline.units import NS_PER_S

SECONDS_PER_HOUR, MILLION = 3_600, 1_000_000


class RunTopology(msgspec.Struct, frozen=True, kw_only=True):
    """What was run on. With several pools `stages` counts one replica of each, `visits` is the longest route's."""

    model: str
    device: str
    stages: int
    visits: int
    replicas: int
    devices: int  # all replicas together
    plan_digest: str  # of the plan, or of the fleet
    fleet: str = ""  # its pools, like "2 x prefill TP4 + 2 x decode TP8"; "": a plan alone


class Advice(msgspec.Struct, frozen=True):
    """One line: what was seen, and what can move it. Whether that helps is for a trial to say."""

    seen: str
    moved_by: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What the devices cost, in the currency of the price."""

    per_device_hour: float  # the price that was given
    per_hour: float
    per_million_output_tokens: float | None  # served in the measurement window; None: none were


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the command knows and the engine does not. `rows` counts the workload's rows by what became of them."""

    engine: str
    seed: int
    command: str
    workload: str
    rows: dict[str, int]
    wall_s: float
    credits: int
    attempts: int = 1
    rerun: Rerun | None = None
    settings: Facts = {}
    price_per_device_hour: float | None = None
    closed: bool = False  # a closed loop


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Times in emulated seconds except wall_s. Latencies cover finished requests; `requests` counts by outcome."""

    digest: str | None  # None: the run did not complete
    complete: bool
    engine: str
    seed: int
    command: str
    workload: str
    workload_rows: dict[str, int]
    topology: RunTopology
    credits: int  # per replica; with several pools the most
    requests: dict[str, int]  # by outcome, and their total
    requests_per_s: float  # of the whole run, its drain included; `measured` has those of the window
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_s: float  # of the whole run
    preemptions: int
    emulated_s: float
    wall_s: float
    ttft_s: Latency
    tpot_s: Latency
    itl_s: Latency
    e2e_s: Latency
    queue_s: Latency
    stages_total: int  # all replicas
    visits: int  # of the route; with several pools of the longest
    microbatches: int
    stage_visits: int
    bubble_ratio: float  # idle without `empty` / (busy + idle without `empty`), all stages together
    binding_stage: int | None  # whose ledger refused most often; stages count through all pools
    busiest_stage: int | None  # with the most busy time, replicas added up
    kv_peak_ratio: float  # the fullest ledger's peak over its budget
    slo: SloResult | None = None
    utilisation: Utilisation | None = None  # None: several pools, or a plan that does not say what work its stages do
    prefix_cache: PrefixSummary | None = None  # None: the run had none
    speculation: SpeculationSummary | None = None  # None: nothing was drafted
    measured: MeasuredRates | None = None  # None: there was no time to measure in
    cost: Cost | None = None  # None: no price was given
    attempts: int = 1  # more: a server died, and the run was done again
    plan: Facts = {}  # how the plan was made
    settings: Facts = {}  # in force during the run
    binds: tuple[Advice, ...] = ()  # the most telling first
    rerun: Rerun | None = None  # what `tune` makes the run from; None: requests that can't be had again, as live ones
    pools: tuple[PoolSummary, ...] = ()  # of a fleet; empty for a plan alone
    hand_over: HandOverSummary | None = None  # None: no KV is handed over
    tiers: tuple[TierSummary, ...] = ()  # below prefix caches; empty without

    def stage_name(self, stage: int | None) -> str:
        """A stage by its number: "3", in a fleet "decode/3"; "-" for None."""
        if stage is None:
            return "-"
        for pool in self.pools:
            if stage < pool.stages:
                return f"{pool.name}/{stage}"
            stage -= pool.stages
        return str(stage)

    @property
    def first(self) -> "Summary | PoolSummary":
        """What has the `visits` and `credits` of replica 0, which pictures of one replica show."""
        return self.pools[0] if self.pools else self

    def replica_name(self, replica: int) -> str:
        """A replica by its number: "3", in a fleet "decode-1"."""
        first = 0
        for pool in self.pools:
            if replica < first + pool.replicas:
                return f"{pool.name}-{replica - first}"
            first += pool.replicas
        return str(replica)


def run_summary(
    pools: RunPools,
    totals: RunTotals | None,
    facts: RunFacts,
    statistics: Statistics,
    digest: str | None,
    tallies: PoolTallies | None = None,
) -> Summary:
    """All figures of one run. Without totals (the run broke off) the figures that need them are zero or None."""
    stages = totals.stages if totals else ()
    window_ns = totals.window_end_ns - totals.window_start_ns if totals else 0
    speculation = speculation_summary(totals.speculation) if totals else None
    times = statistics.latencies()
    on, measured = topology(pools), statistics.measured(closed=facts.closed)
    alone = pools.pools[0].plan if len(pools.pools) == 1 else None
    return Summary(
        digest=digest,
        complete=totals is not None,
        engine=facts.engine,
        seed=facts.seed,
        command=facts.command,
        workload=facts.workload,
        workload_rows=facts.rows,
        topology=on,
        credits=facts.credits,
        requests={"total": statistics.requests, **statistics.outcomes},
        requests_per_s=_rate(statistics.outcomes["finished"], window_ns),
        prompt_tokens=statistics.prompt_tokens,
        output_tokens=statistics.output_tokens,
        output_tokens_per_s=_rate(statistics.output_tokens, window_ns),
        preemptions=statistics.preemptions,
        emulated_s=window_ns / NS_PER_S,
        wall_s=facts.wall_s,
        ttft_s=times["ttft_s"],
        tpot_s=times["tpot_s"],
        itl_s=times["itl_s"],
        e2e_s=times["e2e_s"],
        queue_s=times["queue_s"],
        stages_total=sum(len(plan.stages) for plan in pools.plans),
        visits=on.visits,
        microbatches=totals.microbatches if totals else 0,
        stage_visits=totals.stage_visits if totals else 0,
        bubble_ratio=run_bubble_ratio(stages),
        binding_stage=totals.binding_stage if totals else None,
        busiest_stage=_busiest(pools, stages),
        kv_peak_ratio=max((s.kv_peak_bytes / s.kv_budget_bytes for s in stages if s.kv_budget_bytes), default=0.0),
        slo=statistics.slo_result(measured),
        utilisation=utilisation(alone, stages, statistics.work, speculation) if alone else None,
        prefix_cache=prefix_summary(totals.prefix) if totals else None,
        speculation=speculation,
        measured=measured,
        cost=run_cost(on, measured, facts.price_per_device_hour),
        rerun=facts.rerun,
        attempts=facts.attempts,
        plan=pools.common_info(),
        settings=facts.settings,
        pools=tallies.summaries(totals) if tallies is not None else (),
        hand_over=tallies.hand_overs.summary() if tallies is not None else None,
        tiers=tier_summaries(totals.tiers) if totals else (),
    )


def topology(pools: RunPools) -> RunTopology:
    """What a plan or a fleet runs on."""
    plans = [pool.plan for pool in pools.pools]
    return RunTopology(
        model=SEVERAL.join(pools.models),
        device=pools.device,
        stages=sum(len(plan.stages) for plan in plans),
        visits=max(len(plan.visits) for plan in plans),
        replicas=pools.replicas,
        devices=sum(plan.devices for plan in plans),
        plan_digest=pools.source.digest(),
        fleet=pools.label(),
    )


def run_cost(on: RunTopology, measured: MeasuredRates | None, price: float | None) -> Cost | None:
    """None without a price."""
    if price is None:
        return None
    per_s = measured.served_output_tokens_per_s if measured else 0.0
    hour = on.devices * price
    return Cost(
        per_device_hour=price,
        per_hour=hour,
        per_million_output_tokens=hour / SECONDS_PER_HOUR / per_s * MILLION if per_s else None,
    )


def _rate(count: int, window_ns: int) -> float:
    return count * NS_PER_S / window_ns if window_ns else 0.0


def _busiest(pools: RunPools, stages: Iterable[StageRecord]) -> int | None:
    busy: dict[int, int] = {}
    for record in stages:
        number = pools.stage_number(record)
        busy[number] = busy.get(number, 0) + record.busy_ns
    return max(busy, key=lambda s: (busy[s], -s)) if busy else None
