"""Times of a pipeline at its nominal microbatch: one token's trip L, the busiest stage T, the knee L / T."""

from collections.abc import Sequence
from typing import NamedTuple

from stageline.cost.entries import CostEntry
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.plan.schema import LinkPlan, Visit


class PipelineTiming(NamedTuple):
    """Times of one decode step."""

    trip_ns: int  # L: all visits and links
    busiest_ns: int  # T: the stage whose visits take longest together, or the slowest link
    stage_ns: tuple[int, ...]  # by stage, all its visits together
    network_ns: int  # latency of the hops after each visit, which no faster device can reduce

    @property
    def knee(self) -> int:
        """ceil(L / T): the fewest microbatches in flight that keep the busiest stage busy."""
        return -(-self.trip_ns // self.busiest_ns)


def decode_totals(sequences: int, context_tokens: int) -> BatchTotals:
    """The totals of one decode step of `sequences` requests at `context_tokens` each."""
    kv = sequences * context_tokens
    return BatchTotals(
        decode_sequences=sequences,
        decode_tokens=sequences,
        decode_kv_tokens=kv,
        decode_pairs=kv,
        sampled=sequences,
    )


def serialisation_ns(link: LinkPlan, tokens: int) -> int:
    """ceil(bytes x 1e9 / bytes_per_s): how long `tokens` occupy a link."""
    return -(-tokens * link.bytes_per_token * 10**9 // link.bytes_per_s)


def pipeline_timing(
    stages: int, visits: Sequence[Visit], links: Sequence[LinkPlan], costs: Sequence[CostEntry], totals: BatchTotals
) -> PipelineTiming:
    """The times of a route with these totals; jitter counts with its mean."""
    services = [compile_cost(entry).service_ns(totals) for entry in costs]
    stage_ns = [0] * stages
    for visit in visits:
        stage_ns[visit.stage] += services[visit.cost]
    serialisation = [serialisation_ns(link, totals.sampled) for link in links]
    hops = sum(link.latency_ns + link.jitter_ns // 2 for link in links)
    return PipelineTiming(
        trip_ns=sum(stage_ns) + hops + sum(serialisation),
        busiest_ns=max(*stage_ns, *serialisation, 1),
        stage_ns=tuple(stage_ns),
        network_ns=sum(link.latency_ns for link in links[1:]),
    )
