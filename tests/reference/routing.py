"""Rule 5: which replica an arriving request is bound to, and whether it is taken at all."""

from collections.abc import Callable

from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from tests.reference import kv
from tests.reference.ledger import Ledger
from tests.reference.replica import Replica


def is_taken(plan: Plan, scheduling: Scheduling, request: Request) -> bool:
    """Refused at arrival: what may become longer than the model's context, or fits no empty ledger."""
    if plan.max_context_tokens and request.prompt_tokens + request.max_output_tokens > plan.max_context_tokens:
        return False
    return fits_when_empty(plan, scheduling, request)


def fits_when_empty(plan: Plan, scheduling: Scheduling, request: Request) -> bool:
    """Whether every stage's ledger could hold it alone."""
    tokens = kv.max_tokens(scheduling, request)
    return all(Ledger(stage, plan.block_tokens).has_room(request.index, tokens) for stage in plan.stages)


def choose(replicas: list[Replica], scheduling: Scheduling, next_in_turn: int, request: Request) -> Replica:
    """The replica for a request that is taken; equal ones: the lowest index."""
    if scheduling.balance == "round-robin":
        return replicas[next_in_turn % len(replicas)]
    key = CHOICES[scheduling.balance]
    return min(replicas, key=lambda replica: (key(replica, request), replica.index))


def in_turn(replica: Replica, request: Request) -> tuple[int, ...]:
    """One after the other: no replica is better than another."""
    return ()


def least_loaded(replica: Replica, request: Request) -> tuple[int, ...]:
    """The fewest outstanding tokens."""
    return (outstanding_tokens(replica),)


def most_kv_free(replica: Replica, request: Request) -> tuple[int, ...]:
    """The least KV, queued requests included."""
    return (kv_share(replica),)


def most_cached(replica: Replica, request: Request) -> tuple[int, ...]:
    """The most of its prompt; then the fewest outstanding tokens."""
    return (-found(replica, request), outstanding_tokens(replica))


def found(replica: Replica, request: Request) -> int:
    """Blocks of its prompt that it would find there."""
    return replica.cached_blocks(request)


def outstanding_tokens(replica: Replica) -> int:
    """Tokens still to be computed for its requests, as far as the router may know."""
    everyone = replica.running + replica.waiting
    to_prefill = sum(s.todo_tokens for s in everyone if not s.leaving)
    return to_prefill + sum(s.request.max_output_tokens - s.generated for s in everyone)


def kv_share(replica: Replica) -> int:
    """The fullest stage's used and queued bytes over its budget, in units of 2**-40."""
    return max(stage_share(replica, ledger) for ledger in replica.ledgers)


def stage_share(replica: Replica, ledger: Ledger) -> int:
    """See `kv_share`."""
    if not ledger.plan.kv_budget_bytes:
        return 0
    most = [kv.max_tokens(replica.scheduling, s.request) for s in replica.waiting]
    queued_bytes = sum(ledger.bytes_of(-1, tokens) for tokens in most)  # of nobody: nothing is shared
    share_bytes = ledger.used_bytes() + queued_bytes
    return share_bytes * 2**40 // ledger.plan.kv_budget_bytes


CHOICES: dict[str, Callable[[Replica, Request], tuple[int, ...]]] = {
    "round-robin": in_turn,
    "least-loaded": least_loaded,
    "kv": most_kv_free,
    "prefix": most_cached,
}
NEED_CACHE = ("prefix",)
