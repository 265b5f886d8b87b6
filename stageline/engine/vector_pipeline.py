"""The fast path for routes that visit every stage once: a batch of microbatches goes down the pipe as vectors.

A FIFO server obeys end[k] = max(arrival[k], end[k-1]) + service[k]. With C the running sum of the services this is
end[k] = C[k] + max(free, max over j <= k of arrival[j] - C[j-1]): a cumulative maximum, which numpy computes at once
for a whole batch; a link obeys the same recurrence with its serialisation times. All of it is integer arithmetic, so
that the result equals the heap's to the nanosecond (a property test compares them).
"""

from collections.abc import Sequence as Seq

import numpy as np

from stageline.cost.arrays import IntArray, VectorisedModel
from stageline.cost.totals import BatchTotals
from stageline.cost.vectorised import compile_vectorised
from stageline.engine.attribution import router_ends, way_ends
from stageline.engine.causes import GAP_CAUSES
from stageline.engine.heap_pipeline import HeapPipeline
from stageline.engine.ledger import Ledger
from stageline.engine.link import Link
from stageline.engine.microbatch import Item
from stageline.engine.rng_many import draw_many
from stageline.engine.route import Route
from stageline.engine.stage import Stage
from stageline.errors import LawBroken
from stageline.plan.schema import StagePlan

TOTALS_FIELDS = BatchTotals.__struct_fields__
SMALL_BATCH = 6  # fewer microbatches than this are faster one by one


class VectorPipeline(HeapPipeline):
    """As HeapPipeline, for a route without revisits and without a stage observer.

    Stages whose blocks, states and budgets weigh the same see the same KV changes in the same order. They share one
    ledger here, and the pipeline applies the changes once.
    """

    def __init__(self, route: Route, replica: int, seed: int, models: Seq[VectorisedModel]) -> None:
        """`models`, by cost entry of the plan: see `compile_models`."""
        distinct: dict[tuple[object, ...], Ledger] = {}
        ledgers = [distinct.setdefault(_weight(s), Ledger(s)) for s in route.plan.stages]
        super().__init__(route, replica, seed, ledgers=ledgers)
        self._models = models
        self._tables: dict[tuple[int, int], IntArray] = {}
        self._ledgers = list(distinct.values())

    def feed(self, items: list[Item]) -> list[int]:
        """See HeapPipeline; larger batches are served as vectors."""
        for item in items:
            microbatch = item.microbatch
            if microbatch.releases or microbatch.grants:
                for ledger in self._ledgers:
                    ledger.apply(microbatch.releases, microbatch.grants)
        if len(items) < SMALL_BATCH:
            return super().feed(items)
        return self._feed_batch(Batch(items))

    def release(self, owners: tuple[int, ...]) -> None:
        """See HeapPipeline."""
        for ledger in self._ledgers:
            ledger.close(owners)

    def _feed_batch(self, batch: "Batch") -> list[int]:
        stages, links = self.stages, self.links
        entries: dict[int, tuple[IntArray, IntArray]] = {}  # what visits share is computed once
        wires: dict[tuple[int, int, bool], tuple[IntArray, IntArray]] = {}
        arrivals = np.empty((len(links), len(batch.arrivals)), np.int64)
        ends, services = np.empty_like(arrivals), np.empty_like(arrivals)
        arrival = batch.arrivals
        for visit, link in enumerate(links):
            stage = stages[self.route.stage_of[visit]]
            entry = self._entry[visit]
            if entry not in entries:
                entries[entry] = with_sums(self._service(visit, stage, batch))
            services[visit], sums = entries[entry]
            arrivals[visit] = arrival
            ends[visit] = end = serve_fifo(arrival, services[visit], sums, stage.free_ns)
            tokens = batch.sampled if visit == len(links) - 1 else batch.tokens
            wire = link.bytes_per_token, link.bytes_per_s, tokens is batch.sampled
            if wire not in wires:
                wires[wire] = with_sums(self._serialisation(link, tokens))
            arrival = send_fifo(link, end, wires[wire], batch.numbers)
        self._account(stages, batch, arrivals, ends, services)
        return arrival.tolist()  # type: ignore[no-any-return]

    def _service(self, visit: int, stage: Stage, batch: "Batch") -> IntArray:
        draws = draw_many(stage.draw_key(visit), batch.numbers) if self.route.models[visit].uses_draw else None
        services = self._models[self.route.plan.visits[visit].cost](batch.columns, draws)
        least = self.route.min_service_ns[visit]
        if int(services.min()) < least:
            raise LawBroken(f"visit {visit} took {services.min()} ns, less than the plan's minimum of {least} ns")
        return services

    def _serialisation(self, link: Link, tokens: IntArray) -> IntArray:
        """Exact times from a table by token count, made of Python integers: the products exceed 64 bits."""
        key = link.bytes_per_token, link.bytes_per_s
        most = int(tokens.max())
        table = self._tables.get(key)
        if table is None or len(table) <= most:
            size = max(2 * most, 64)
            table = self._tables[key] = np.array([link.serialisation_ns(n) for n in range(size)], np.int64)
        return table[tokens]

    def _account(
        self, stages: list[Stage], batch: "Batch", arrivals: IntArray, ends: IntArray, services: IntArray
    ) -> None:
        """Busy time, and every gap split by cause as `split_gap` does, for all visits and microbatches at once."""
        starts = ends - services
        before, lasts = np.empty_like(ends), np.empty_like(services)
        before[:, 1:], lasts[:, 1:] = ends[:, :-1], services[:, :-1]
        for visit, index in enumerate(self.route.stage_of):
            stage = stages[index]
            before[visit, 0], lasts[visit, 0] = stage.free_ns, stage.lateness.service_ns[visit]
            stage.lateness.service_ns[visit] = int(services[visit, -1])
        late = lateness(starts - before, services, lasts, batch.columns["prefill_tokens"])
        for visit, index in enumerate(self.route.stage_of):
            stage = stages[index]
            if stage.started_ns is None:
                before[visit, 0] = stage.started_ns = int(starts[visit, 0])
        prev_ends = np.vstack((batch.dispatch_ns, ends[:-1]))
        mark, gaps = before, []
        for stamp in (*router_ends(batch, np.maximum), *way_ends(prev_ends, late, starts)):
            upto = np.minimum(np.maximum(stamp, mark), starts)
            gaps.append((upto - mark).sum(axis=1).tolist())
            mark = upto
        busy, last = services.sum(axis=1).tolist(), ends[:, -1].tolist()
        for visit, index in enumerate(self.route.stage_of):
            stage = stages[index]
            stage.busy_ns += busy[visit]
            stage.free_ns = last[visit]
            stage.services += ends.shape[1]
            for cause in range(len(GAP_CAUSES)):
                stage.gap_ns[cause] += gaps[cause][visit]


class Batch:
    """The columns of a batch of microbatches."""

    def __init__(self, items: list[Item]) -> None:
        microbatches = [i.microbatch for i in items]
        self.arrivals = column([i.arrival_ns for i in items])
        self.numbers = column([m.number for m in microbatches])
        loads = [m.totals for m in microbatches]
        self.columns = {name: column([getattr(x, name) for x in loads]) for name in TOTALS_FIELDS}
        self.tokens = self.columns["decode_tokens"] + self.columns["prefill_tokens"]
        self.sampled = self.columns["sampled"]
        self.dispatch_ns = column([m.dispatch_ns for m in microbatches])
        self.work_since_ns = column([m.work_since_ns for m in microbatches])
        self.empty_since_ns = column([m.empty_since_ns for m in microbatches])
        self.credit_since_ns = column([m.credit_since_ns for m in microbatches])


def lateness(gaps: IntArray, services: IntArray, lasts: IntArray, prefill: IntArray) -> tuple[IntArray, IntArray]:
    """(chunk_wait, lag) of each microbatch at each visit, as `Lateness` has them; arrays of (visits, microbatches).

    `lasts`: the service times of the microbatch before; `prefill`: prefill tokens of each. On the way down
    chunk_wait' = min(chunk_wait, gap) + own. With C the sum of `own` above a visit, that is C + min(0, min of gap - C
    over the visits above).
    """
    waits, lags = np.zeros_like(gaps), np.zeros_like(gaps)
    if prefill.any():
        own = np.maximum(services - lasts, 0) * (prefill > 0)
        above = np.cumsum(own, axis=0)
        waits[1:] = np.minimum(np.minimum.accumulate(gaps - above + own, axis=0), 0)[:-1] + above[:-1]
    falls = lasts[:-1] - lasts[1:]
    for visit, fall in enumerate(falls if falls.any() else ()):
        lag = lags[visit + 1]
        np.minimum(lags[visit], gaps[visit], out=lag)
        lag += fall
        np.maximum(lag, 0, out=lag)
    return waits, lags


def column(values: list[int]) -> IntArray:
    """A list as int64."""
    return np.array(values, np.int64)


def with_sums(services: IntArray) -> tuple[IntArray, IntArray]:
    """Services and their running sum."""
    return services, np.cumsum(services)


def serve_fifo(arrivals: IntArray, services: IntArray, sums: IntArray, free_ns: int) -> IntArray:
    """Ends of a FIFO server: end[k] = max(arrival[k], end[k-1]) + service[k], end[-1] = free."""
    slack = arrivals - sums
    slack += services
    slack[0] = max(slack[0], free_ns)
    ends: IntArray = np.maximum.accumulate(slack)
    ends += sums
    return ends


def send_fifo(link: Link, ends: IntArray, serialisation: tuple[IntArray, IntArray], numbers: IntArray) -> IntArray:
    """`Link.send` for a batch: arrivals at the far end."""
    free = serve_fifo(ends, *serialisation, link.free_ns)
    link.free_ns = int(free[-1])
    arrivals = free + link.latency_ns
    if link.jitter_ns:
        jitter = draw_many(link.jitter_key, numbers) % np.uint64(link.jitter_ns + 1)
        arrivals += jitter.astype(np.int64)
        arrivals[0] = max(int(arrivals[0]), link.last_arrival_ns)
        arrivals = np.maximum.accumulate(arrivals)
    link.last_arrival_ns = int(arrivals[-1])
    return arrivals


def compile_models(route: Route) -> list[VectorisedModel]:
    """The vectorised service models of a plan; all its replicas can share them."""
    return [compile_vectorised(entry) for entry in route.plan.costs]


def _weight(stage: StagePlan) -> tuple[object, ...]:
    """Stages with equal weights have equal ledgers at all times."""
    return stage.kv_block_bytes, stage.state_bytes, stage.kv_budget_bytes, stage.windows
