"""Rule 5, `slo` batching: the largest microbatch with which a full pipeline keeps its time per token."""

from stageline.cost.load import Load
from stageline.cost.service import compile_cost
from stageline.plan.schema import Plan
from tests.reference.link import serialisation_ns
from tests.reference.replica import Replica

CONTEXT_STEP = 256


def slo_limit(replica: Replica) -> int:
    """Of 1 to the limit the largest that keeps the target; 1 when none does."""
    target_ns = replica.scheduling.tpot_slo_ns
    assert target_ns is not None
    context_tokens = max(1, rounded_up(mean_written_tokens(replica), CONTEXT_STEP))
    for members in range(replica.microbatch_limit, 1, -1):
        if tpot_ns(replica.plan, replica.credits_total, members, context_tokens) <= target_ns:
            return members
    return 1


def mean_written_tokens(replica: Replica) -> int:
    """Of the running sequences, rounded down; 0 when none runs."""
    written = [sequence.written_tokens for sequence in replica.running]
    return sum(written) // len(written) if written else 0


def rounded_up(value: int, step: int) -> int:
    """To the next multiple."""
    return (value + step - 1) // step * step


def tpot_ns(plan: Plan, credits_: int, members: int, context_tokens: int) -> int:
    """A token's own trip, or its turn at the busiest stage behind all other microbatches in flight."""
    kv_tokens = members * context_tokens
    load = Load(members, members, kv_tokens, kv_tokens, sampled=members)
    trip_ns = sum(
        link.latency_ns + serialisation_ns(members * link.bytes_per_token, link.bytes_per_s) for link in plan.links
    )
    stages = [0] * len(plan.stages)
    for visit in plan.visits:
        service_ns = compile_cost(plan.costs[visit.cost]).service_ns(load)
        trip_ns += service_ns
        stages[visit.stage] += service_ns
    return max(trip_ns, credits_ * max(stages))
