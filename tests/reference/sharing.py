"""Rule 8: what a sequence reuses, what it leaves for others, and what goes to make room."""

from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from tests.reference.ledger import Cached
from tests.reference.prefix import PlainCache
from tests.reference.replica import Replica, blocks_per_identity
from tests.reference.sequence import Sequence


def cache_of(plan: Plan, scheduling: Scheduling) -> PlainCache | None:
    """The cache that the settings ask for."""
    if not scheduling.prefix_cache:
        return None
    tokens = scheduling.hash_block_tokens or plan.block_tokens
    has_state = any(stage.state_bytes for stage in plan.stages)
    largest = max((window.most_blocks for stage in plan.stages for window in stage.kv_windows or ()), default=0)
    return PlainCache(
        tokens,
        snapshot_every=scheduling.snapshot_tokens // tokens if has_state else 0,
        window_reach=-(-largest // blocks_per_identity(plan, scheduling)),
    )


def reuse(replica: Replica, sequence: Sequence) -> int:
    """Use what is there of its prompt, and of what it generated before a preemption; the tokens that this saves."""
    cache, request = replica.cache, sequence.request
    if cache is not None:
        ids = cache.identities(request)
        sequence.shared = cache.longest(ids, request.prompt_tokens + sequence.generated)
        cache.hold(ids, sequence.shared)
    replica.mirror_cache(sequence)
    return sequence.shared * (0 if cache is None else cache.block_tokens)


def forget(replica: Replica, sequence: Sequence) -> None:
    """It could not be admitted after all."""
    if replica.cache is not None:
        replica.cache.let_go(replica.cache.identities(sequence.request), sequence.shared)
    sequence.shared = 0
    for ledger in replica.ledgers:
        del ledger.shared[sequence.index]


def find_room(replica: Replica, sequence: Sequence, tokens: int) -> bool:
    """Room for a sequence to hold `tokens`, by giving up as little as needed; nothing goes if that is not enough."""
    cache = replica.cache
    if cache is None:
        return replica.has_room(sequence, tokens)
    if not replica.has_room(sequence, tokens, cache.could_free()):
        return False
    while not replica.has_room(sequence, tokens):
        give_up_one(replica, cache, sequence)
    return True


def give_up_one(replica: Replica, cache: PlainCache, sequence: Sequence) -> None:
    """The next to go goes."""
    going = cache.next_to_go()
    assert going is not None
    before = len(cache.given_up)
    cache.give_up(*going)
    replica.gave_up(cache.given_up[before:])
    replica.mirror_cache(sequence)


def share(replica: Replica, sequence: Sequence) -> None:
    """Blocks full of known tokens belong to everybody once they are computed; a copy of what was there goes back."""
    cache, request = replica.cache, sequence.request
    if cache is None:
        return
    ids = cache.identities(request)
    computed = min(request.prompt_tokens + sequence.generated, sequence.written_tokens) // cache.block_tokens
    completed = range(sequence.shared + 1, min(computed, len(ids)) + 1)
    for n in completed:
        is_new = cache.add(ids[:n])
        sequence.shared = n
        replica.mirror_cache(sequence)
        if is_new and cache.wants_snapshot(ids[:n]) and room_for_copy(replica, cache, sequence, (0, 1, 0)):
            cache.keep_snapshot(ids[:n])
            replica.mirror_cache(sequence)
    for n in reversed(completed):
        if cache.wants_window(ids[:n]) and room_for_copy(replica, cache, sequence, (0, 0, 1)):
            cache.keep_window(ids[:n])
            replica.mirror_cache(sequence)


def room_for_copy(replica: Replica, cache: PlainCache, sequence: Sequence, more: Cached) -> bool:
    """Room for a state or window KV more, made like any other room."""
    tokens = replica.held_tokens(sequence)
    without_all = tuple(free - new for free, new in zip(cache.could_free(), more, strict=True))
    if not replica.has_room(sequence, tokens, without_all):
        return False
    while not replica.has_room(sequence, tokens, tuple(-new for new in more)):
        give_up_one(replica, cache, sequence)
    return True
