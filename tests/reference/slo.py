"""Rule 5, `slo` batching: the largest microbatch with which a full pipeline keeps its time per token."""

from fractions import Fraction

from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.engine.settings import Scheduling
from tests.reference.link import serialisation_ns
from tests.reference.replica import Replica

CONTEXT_STEP = 256


def slo_limit(replica: Replica) -> int:
    """Of 1 to the limit the largest that keeps the target; 1 when none does."""
    target_ns = step_target_ns(replica.scheduling)
    context_tokens = max(1, rounded_up(mean_written_tokens(replica), CONTEXT_STEP))
    for members in range(replica.microbatch_limit, 1, -1):
        if step_ns(replica, members, context_tokens) <= target_ns:
            return members
    return 1


def mean_written_tokens(replica: Replica) -> int:
    """Of the running sequences, rounded down; 0 when none runs."""
    written = [sequence.written_tokens for sequence in replica.running]
    return sum(written) // len(written) if written else 0


def rounded_up(value: int, step: int) -> int:
    """To the next multiple."""
    return (value + step - 1) // step * step


def step_target_ns(scheduling: Scheduling) -> int:
    """A step may take as long as the tokens that it yields on average: 1 + p + p^2 + ... (rule 9)."""
    assert scheduling.tpot_slo_ns is not None
    right = Fraction(scheduling.acceptance_ppm, 10**6)
    return int(scheduling.tpot_slo_ns * sum(right**drafts for drafts in range(scheduling.speculate + 1)))


def step_ns(replica: Replica, members: int, context_tokens: int) -> int:
    """A token's own trip, or its turn at the busiest stage behind all other microbatches in flight.

    Every member brings its last token and K drafts, each of which sees the context and the drafts before it.
    """
    plan, drafts = replica.plan, replica.scheduling.speculate
    tokens = members * (1 + drafts)
    pairs = members * sum(context_tokens + before for before in range(1 + drafts))
    totals = BatchTotals(members, tokens, members * (context_tokens + drafts), pairs, sampled=tokens)
    drafting_ns = drafts * replica.scheduling.draft_ns
    trip_ns = drafting_ns + sum(
        link.latency_ns + serialisation_ns(tokens * link.bytes_per_token, link.bytes_per_s) for link in plan.links
    )
    stages = [0] * len(plan.stages)
    stages[plan.visits[0].stage] = drafting_ns
    for visit in plan.visits:
        service_ns = compile_cost(plan.costs[visit.cost]).service_ns(totals)
        trip_ns += service_ns
        stages[visit.stage] += service_ns
    return max(trip_ns, replica.credits_total * max(stages))
