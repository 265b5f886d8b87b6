"""The fast path for routes that visit every stage once: a batch of microbatches goes down the pipe as vectors.

A FIFO server obeys end[k] = max(arrival[k], end[k-1]) + service[k]. With C the running sum of the services this is
end[k] = C[k] + max(free, max over j <= k of arrival[j] - C[j-1]): a cumulative maximum, which numpy computes at once
for a whole batch; a link obeys the same recurrence with its serialisation times. All of it is integer arithmetic, so
that the result equals the heap's to the nanosecond (a property test compares them).
"""

from collections.abc import Sequence as Seq
from operator import add

import numpy as np

from stageline.cost.arrays import IntArray, VectorisedModel
from stageline.cost.totals import BatchTotals
from stageline.cost.vectorised import compile_vectorised
from stageline.engine.heap_pipeline import HeapPipeline
from stageline.engine.ledger import Ledger
from stageline.engine.link import Link
from stageline.engine.microbatch import Item
from stageline.engine.rng_many import draw_many
from stageline.engine.route import Route
from stageline.engine.stage import Stage
from stageline.engine.vector_gaps import CELLS, Lateness, Services, Stamps, split_gaps
from stageline.errors import LawBroken
from stageline.plan.schema import StagePlan

TOTALS_FIELDS = BatchTotals.__struct_fields__
Wire = tuple[int, int, bool]  # what links that take equal times have in common: bytes per token and s, the way back
SMALL_BATCH = 10  # fewer microbatches than this are faster one by one


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
        links, stage_of, microbatches = self.links, self.route.stage_of, len(batch.arrivals)
        loads: dict[int, Load] = {}  # what visits share is computed once
        wires: dict[Wire, Fifo] = {}
        spaced: dict[tuple[int, Wire], bool] = {}
        # By visit, the dispatch first: when the services ended; column 0: when the stage was free.
        ends = np.zeros((len(links) + 1, microbatches + 1), np.int64)
        starts = np.empty((len(links), microbatches), np.int64)
        ends[0, 1:] = batch.stamps.dispatch_ns
        arrival = batch.arrivals
        for visit, link in enumerate(links):
            stage, entry = self.stages[stage_of[visit]], self._entry[visit]
            load = loads.get(entry)
            if load is None:
                load = loads[entry] = Load(self._service(visit, stage, batch), stage.lateness.service_ns[visit])
            end = serve_fifo(arrival, load.fifo, stage.free_ns, ends[visit + 1])
            np.subtract(end, load.fifo.services, out=starts[visit])
            tokens = batch.sampled if visit == len(links) - 1 else batch.tokens
            wire = link.bytes_per_token, link.bytes_per_s, tokens is batch.sampled
            if wire not in wires:
                wires[wire] = Fifo(self._serialisation(link, tokens))
            if (entry, wire) not in spaced:
                spaced[entry, wire] = bool((load.fifo.services[1:] >= wires[wire].services[:-1]).all())
            arrival = send_fifo(link, end, wires[wire], batch.numbers, spaced=spaced[entry, wire])
        self._account(batch, [loads[entry] for entry in self._entry], ends, starts)
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

    def _account(self, batch: "Batch", loads: "list[Load]", ends: IntArray, starts: IntArray) -> None:
        """Busy time, and every gap split by cause as `split_gap` does. `loads`: by visit."""
        stages, microbatches = [self.stages[index] for index in self.route.stage_of], len(batch.arrivals)
        late = Lateness([load.rows for load in loads], batch.columns["prefill_tokens"], ends[1:, :-1], starts)
        for visit, stage in enumerate(stages):
            if stage.started_ns is None:  # its first service has no gap
                ends[visit + 1, 0] = stage.started_ns = int(starts[visit, 0])
        block = max(1, CELLS // microbatches)
        gaps: list[list[int]] = []
        for first in range(0, len(stages), block):
            after = min(first + block, len(stages))
            gaps += split_gaps(batch.stamps, ends[first : after + 1], starts[first:after], late, first).tolist()
        for visit, (stage, load, last) in enumerate(zip(stages, loads, ends[1:, -1].tolist(), strict=True)):
            stage.busy_ns += load.busy_ns
            stage.free_ns = last
            stage.services += microbatches
            stage.lateness.service_ns[visit] = load.last_ns
            stage.gap_ns[:] = map(add, stage.gap_ns, gaps[visit])


class Fifo:
    """The service times of a FIFO server, with their running sum C: C[k], and -C[k-1]."""

    __slots__ = ("offsets", "services", "sums")

    def __init__(self, services: IntArray) -> None:
        self.services = services
        self.sums = np.cumsum(services)
        self.offsets = services - self.sums


class Load:
    """What the visits of one cost entry have in common."""

    __slots__ = ("busy_ns", "fifo", "last_ns", "rows")

    def __init__(self, services: IntArray, before_ns: int) -> None:
        """`before_ns`: the service time of the microbatch before the first."""
        self.fifo = Fifo(services)
        self.rows = Services(services, np.concatenate(([before_ns], services[:-1])))
        self.busy_ns, self.last_ns = int(self.fifo.sums[-1]), int(services[-1])


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
        waits = [m.transfer_wait_ns for m in microbatches]
        self.stamps = Stamps(
            dispatch_ns=column([m.dispatch_ns for m in microbatches]),
            work_since_ns=column([m.work_since_ns for m in microbatches]),
            empty_since_ns=column([m.empty_since_ns for m in microbatches]),
            credit_since_ns=column([m.credit_since_ns for m in microbatches]),
            transfer_wait_ns=column(waits) if any(waits) else 0,
        )


def column(values: list[int]) -> IntArray:
    """A list as int64."""
    return np.array(values, np.int64)


def serve_fifo(arrivals: IntArray, load: Fifo, free_ns: int, row: IntArray) -> IntArray:
    """Ends of a FIFO server: end[k] = max(arrival[k], end[k-1]) + service[k], end[-1] = free.

    They are a view of `row`, which has room for one more: the free time goes before them.
    """
    ends = row[1:]
    row[0] = free_ns
    np.add(arrivals, load.offsets, out=ends)
    np.maximum.accumulate(row, out=row)
    ends += load.sums
    return ends


def send_fifo(link: Link, ends: IntArray, load: Fifo, numbers: IntArray, *, spaced: bool) -> IntArray:
    """`Link.send` for a batch: arrivals at the far end. `spaced`: ends are so far apart that none waits for another."""
    if spaced and link.free_ns <= ends[0]:
        free = ends + load.services
    else:
        free = serve_fifo(ends, load, link.free_ns, np.empty(len(ends) + 1, np.int64))
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
