"""Figures of each pool of a fleet: `pools` of summary.json."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from stageline.engine.fleet import Fleet
from stageline.engine.types import PrefixStats, RequestRecord, RunTotals, SpeculationStats, StageRecord
from stageline.plan.report import device_text
from stageline.report.distributions import ExactValues, Latency, latency
from stageline.report.hand_overs import HandOverTally, PortFigures
from stageline.report.idle import run_bubble_ratio
from stageline.report.pools import RunPool, RunPools
from stageline.report.prefix import PrefixSummary, prefix_summary
from stageline.report.settings import Facts
from stageline.report.speculation import speculation_summary
from stageline.report.utilisation import Utilisation, WorkDone, utilisation
from stageline.units import NS_PER_S

T = TypeVar("T")


class PoolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One pool, its replicas together. Rates are of the whole run; times in emulated seconds."""

    name: str
    role: str
    model: str
    device: str
    label: str  # replicas, name and division: "2 x decode TP8"
    replicas: int
    devices: int
    stages: int  # of one replica
    visits: int  # of its route
    plan_digest: str
    credits: int  # per replica
    requests: int  # bound to its replicas, or handed over to them
    finished: int  # that finished, here or where they were handed over to
    requests_per_s: float  # finished
    prompt_tokens: int
    prompt_tokens_per_s: float
    output_tokens: int
    output_tokens_per_s: float
    preemptions: int  # of requests that were handed over: counted where they decode
    queue_s: Latency  # of its admitted requests: from joining its queue to the first admission there
    busy_ratio: float  # busy time of its stages over the window: occupancy
    bubble_ratio: float
    kv_peak_ratio: float  # the fullest ledger's peak over its budget
    utilisation: Utilisation | None = None  # None: the plan does not say what work its stages do
    prefix_cache: PrefixSummary | None = None  # None: the pool has none
    ports: PortFigures | None = None  # of KV that is handed over; None: the fleet hands nothing over
    plan: Facts = {}  # how its plan was made
    settings: Facts = {}  # in force during the run


class _Tally:
    """What requests did in one pool."""

    def __init__(self) -> None:
        self.requests = self.finished = self.prompt_tokens = self.output_tokens = self.preemptions = 0
        self.queue, self.work = ExactValues(), WorkDone()

    def request(self, record: RequestRecord) -> None:
        """Adds a record that belongs here alone."""
        self._bound(record)
        self.prompt_tokens += record.prompt_tokens
        self.output_tokens += record.output_tokens
        self.preemptions += record.preemptions
        self.work.request(record)
        if record.admitted_ns is not None:
            self.queue.add(record.admitted_ns - record.arrival_ns)

    def prefilled(self, record: RequestRecord, output_tokens: int) -> None:
        """Adds a record that was handed over from here, and so many tokens that counted here."""
        self._bound(record)
        self.prompt_tokens += record.prompt_tokens
        self.output_tokens += output_tokens
        self.work.prefill(record)

    def decoded(self, record: RequestRecord, output_tokens: int) -> None:
        """Adds a record that was handed over to here, and so many tokens that it got here."""
        self._bound(record)
        self.output_tokens += output_tokens
        self.preemptions += record.preemptions
        self.work.decode(record, output_tokens)

    def waited(self, since_ns: int | None, until_ns: int | None) -> None:
        """Adds the time in the queue of a request that was handed over, if both ends are known."""
        if since_ns is not None and until_ns is not None:
            self.queue.add(until_ns - since_ns)

    def _bound(self, record: RequestRecord) -> None:
        self.requests += 1
        self.finished += record.outcome == "finished"


class PoolTallies:
    """Sorts the records of a run by pool. It keeps 8 bytes per request."""

    def __init__(self, pools: RunPools) -> None:
        self._pools = pools
        self._tallies = [_Tally() for _ in pools.pools]
        self.hand_overs = HandOverTally(pools)
        fleet = pools.source
        hand_over = fleet.hand_over if isinstance(fleet, Fleet) else None
        self._first_at_source = hand_over is not None and hand_over.first_token == "prefill"
        self._source_first = hand_over is not None and hand_over.order == "source-first"

    def request(self, record: RequestRecord) -> None:
        """Adds one record; a request that was refused belongs to no pool."""
        if record.replica is None:
            return
        source, moved = self._tallies[self._pools.place(record.replica)], record.hand_over
        self.hand_overs.request(record)
        if moved is None or moved.decode_replica is None or moved.landed_ns is None:
            source.request(record)
            return
        first = min(record.output_tokens, 1) if self._first_at_source else 0
        target = self._tallies[self._pools.place(moved.decode_replica)]
        source.prefilled(record, first)
        target.decoded(record, record.output_tokens - first)
        if self._source_first:
            source.waited(record.arrival_ns, record.admitted_ns)
            target.waited(record.first_token_ns if self._first_at_source else None, moved.reserved_ns)
        else:
            target.waited(record.arrival_ns, moved.reserved_ns)
            source.waited(moved.reserved_ns, record.admitted_ns)

    def summaries(self, totals: RunTotals | None) -> tuple[PoolSummary, ...]:
        """The figures of all pools; those of stages are zero without totals."""
        window_ns = totals.window_end_ns - totals.window_start_ns if totals else 0
        pools, stages = self._pools.pools, totals.stages if totals else ()
        prefix = _by_pool(pools, totals.prefix if totals else (), "prefix_cache")
        drafts = _by_pool(pools, totals.speculation if totals else (), "speculate")
        parts = zip(pools, self._tallies, prefix, drafts, strict=True)
        found = [
            _summary(pool, tally, pool.records(stages), window_ns, cached, drafted)
            for pool, tally, cached, drafted in parts
        ]
        ports = [self.hand_overs.ports(i, window_ns) for i in range(len(found))]
        return tuple(msgspec.structs.replace(pool, ports=own) for pool, own in zip(found, ports, strict=True))


def _by_pool(pools: Sequence[RunPool], stats: Sequence[T], setting: str) -> Iterator[Sequence[T]]:
    """Statistics that only replicas with a setting have, by pool."""
    left = list(stats)
    for pool in pools:
        count = len(pool.replicas) if getattr(pool.scheduling, setting, None) else 0
        yield left[:count]
        del left[:count]


def _summary(
    pool: RunPool,
    tally: _Tally,
    stages: Sequence[StageRecord],
    window_ns: int,
    prefix: Sequence[PrefixStats],
    drafts: Sequence[SpeculationStats],
) -> PoolSummary:
    plan = pool.plan
    whole = sum(record.window_ns for record in stages)
    return PoolSummary(
        name=pool.name,
        role=pool.role,
        model=plan.model,
        device=device_text(plan),
        label=pool.label(),
        replicas=plan.replicas,
        devices=plan.devices,
        stages=len(plan.stages),
        visits=len(plan.visits),
        plan_digest=plan.digest(),
        credits=pool.credits,
        requests=tally.requests,
        finished=tally.finished,
        requests_per_s=_rate(tally.finished, window_ns),
        prompt_tokens=tally.prompt_tokens,
        prompt_tokens_per_s=_rate(tally.prompt_tokens, window_ns),
        output_tokens=tally.output_tokens,
        output_tokens_per_s=_rate(tally.output_tokens, window_ns),
        preemptions=tally.preemptions,
        queue_s=latency(tally.queue),
        busy_ratio=sum(record.busy_ns for record in stages) / whole if whole else 0.0,
        bubble_ratio=run_bubble_ratio(stages),
        kv_peak_ratio=max((s.kv_peak_bytes / s.kv_budget_bytes for s in stages if s.kv_budget_bytes), default=0.0),
        utilisation=utilisation(plan, stages, tally.work, speculation_summary(drafts)),
        prefix_cache=prefix_summary(prefix),
        plan=plan.info,
        settings=pool.settings(),
    )


def _rate(count: int, window_ns: int) -> float:
    return count * NS_PER_S / window_ns if window_ns else 0.0
