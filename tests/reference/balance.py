"""Rule 5: which replica an arriving request is bound to, and whether it is taken at all."""

from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from tests.reference.ledger import Ledger, blocks_of
from tests.reference.replica import Replica


def fits_when_empty(plan: Plan, scheduling: Scheduling, request: Request) -> bool:
    """Whether every stage's ledger could hold it alone; under `grow` its last token is never written."""
    tokens = request.prompt_tokens + request.max_output_tokens
    if scheduling.kv == "grow":
        tokens -= 1
    return all(Ledger(stage, plan.block_tokens).has_room(request.index, tokens) for stage in plan.stages)


def choose(replicas: list[Replica], scheduling: Scheduling, next_in_turn: int) -> Replica:
    """The replica for a request that is taken; equal ones: the lowest index."""
    if scheduling.balance == "round-robin":
        return replicas[next_in_turn % len(replicas)]
    key = outstanding_tokens if scheduling.balance == "least-loaded" else kv_share
    return min(replicas, key=lambda replica: (key(replica), replica.index))


def outstanding_tokens(replica: Replica) -> int:
    """Tokens still to be computed for its requests, as far as the router may know."""
    return sum(s.todo_tokens + s.request.max_output_tokens - s.generated for s in replica.running + replica.waiting)


def kv_share(replica: Replica) -> int:
    """The fullest stage's used and queued bytes over its budget, in units of 2**-40."""
    return max(stage_share(replica, ledger) for ledger in replica.ledgers)


def stage_share(replica: Replica, ledger: Ledger) -> int:
    """See `kv_share`."""
    if not ledger.plan.kv_budget_bytes:
        return 0
    blocks = sum(blocks_of(tokens, ledger.block_tokens) for tokens in ledger.held.values())
    for s in replica.waiting:
        blocks += blocks_of(s.request.prompt_tokens + s.request.max_output_tokens, ledger.block_tokens)
    sequences = len(ledger.held) + len(replica.waiting)
    share_bytes = blocks * ledger.plan.kv_block_bytes + sequences * ledger.plan.state_bytes
    return share_bytes * 2**40 // ledger.plan.kv_budget_bytes
