"""Rule 12: what the prefix cache gives up is kept in host memory and in a store, and loaded from there."""

from collections.abc import Sequence as Listed
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from tests.reference import kv, sharing
from tests.reference.fleet_types import LoadRecord, Tier
from tests.reference.link import serialisation_ns
from tests.reference.prefix import Past
from tests.reference.replica import Replica
from tests.reference.sequence import Member, Sequence, causal_pairs

if TYPE_CHECKING:
    from tests.reference.fleet_replica import FleetReplica

Key = tuple[str, int, str, Past]  # model, bytes, what ("block", "snapshot" or "window"), of which block


@dataclass(slots=True)
class Item:
    """One block's KV, its snapshot, or its window KV, in a tier."""

    written_ns: int  # from then on it can be hit
    last_use: int
    pins: int = 0  # loads that read it


@dataclass(slots=True)
class TierState:
    """A tier during a run."""

    tier: Tier
    below: "TierState | None" = None
    items: dict[Key, Item] = field(default_factory=dict)
    uses: int = 0
    write_free_ns: int = 0
    read_free_ns: int = 0
    loaded_blocks: int = 0
    read_bytes: int = 0
    written: list[Key] = field(default_factory=list)
    evicted: list[Key] = field(default_factory=list)
    dropped: list[Key] = field(default_factory=list)
    peak_bytes: int = 0

    def used_bytes(self) -> int:
        """What lies in it, and what is being written into it."""
        return sum(size_bytes for _, size_bytes, _, _ in self.items)

    def has(self, key: Key, now_ns: int) -> bool:
        """Whether it can be hit."""
        return key in self.items and self.items[key].written_ns <= now_ns

    def touch(self, key: Key) -> None:
        """It is the one used last."""
        self.uses += 1
        self.items[key].last_use = self.uses

    def write(self, key: Key, now_ns: int) -> None:
        """Something comes down: it takes the place of what has not been used for longest, or is dropped."""
        if key in self.items:
            self.touch(key)
            return
        if not self.make_room(key[1], now_ns):
            self.dropped.append(key)
            return
        size_bytes = key[1]
        self.write_free_ns = max(now_ns, self.write_free_ns)
        self.write_free_ns += max(1, serialisation_ns(size_bytes, self.tier.write_bytes_per_s))
        self.items[key] = Item(self.write_free_ns, 0)
        self.touch(key)
        self.written.append(key)
        self.peak_bytes = max(self.peak_bytes, self.used_bytes())

    def make_room(self, size_bytes: int, now_ns: int) -> bool:
        """What goes goes one tier down. Nothing goes if that is not enough, nor what is pinned or being written."""
        able = [key for key, item in self.items.items() if not item.pins and item.written_ns <= now_ns]
        stays_bytes = self.used_bytes() - sum(key[1] for key in able)
        if stays_bytes + size_bytes > self.tier.capacity_bytes:
            return False
        for key in sorted(able, key=lambda k: self.items[k].last_use):
            if self.used_bytes() + size_bytes <= self.tier.capacity_bytes:
                break
            del self.items[key]
            self.evicted.append(key)
            if self.below is not None:
                self.below.write(key, now_ns)
        return True

    def landed_ns(self, size_bytes: int, now_ns: int) -> int:
        """When a load of so much, booked now, would be on the device."""
        took_ns = max(1, serialisation_ns(size_bytes, self.tier.read_bytes_per_s))
        return max(now_ns, self.read_free_ns) + took_ns + self.tier.latency_ns

    def load(self, keys: Listed[Key], now_ns: int) -> int:
        """Book one load of all that; when it lands. The least deep is the one used last."""
        size_bytes = sum(key[1] for key in keys)
        landed_ns = self.landed_ns(size_bytes, now_ns)
        self.read_free_ns = landed_ns - self.tier.latency_ns
        for key in sorted(keys, key=lambda k: -len(k[3])):
            self.touch(key)
        self.read_bytes += size_bytes
        self.loaded_blocks += sum(key[2] == "block" for key in keys)
        return landed_ns


@dataclass(slots=True)
class Load:
    """Items of one or two tiers on their way to the device."""

    sequence: Sequence
    replica: int
    blocks: int  # of the prompt, that it then has, those on the device included
    items: list[tuple[TierState, list[Key]]]  # host, then store; none that has nothing to load
    start_ns: int = 0
    landed_ns: int = 0

    def pin(self, by: int) -> None:
        """All its items, once more or once less."""
        for tier, keys in self.items:
            for key in keys:
                tier.items[key].pins += by


# ---- going down


def key_of(replica: Replica, what: str, past: Past) -> Key:
    """The name of an item everywhere: replicas of one model whose items have the same size share it in the store."""
    assert replica.cache is not None
    per_identity = replica.blocks_per_identity
    plan = replica.plan
    size_bytes = {
        "block": sum(stage.kv_block_bytes for stage in plan.stages) * per_identity,
        "snapshot": sum(stage.state_bytes for stage in plan.stages),
        "window": sum(ledger.window_bytes(per_identity) for ledger in replica.ledgers),
    }[what]
    return (plan.model, size_bytes, what, past)


def write_back(replica: "FleetReplica", member: Member) -> None:
    """Write-through: what a chunk or a decode step that is back has completed, the deepest first."""
    cache = replica.cache
    if cache is None or not replica.tiers or replica.offload != "write-through":
        return
    ids = cache.identities(member.sequence.request)
    for n in reversed(member.completed):
        block = cache.held[ids[:n]]
        kept = [("block", True), ("snapshot", block.snapshot), ("window", block.window)]
        for what in [what for what, there in kept if there]:
            replica.tiers[0].write(key_of(replica, what, ids[:n]), replica.book.now_ns)


# ---- coming up


def find_load(replica: "FleetReplica", sequence: Sequence, chunk_tokens: int) -> Load | None:
    """What would be loaded if the sequence were admitted now. None: nothing below is worth it, or there is nothing."""
    cache, now_ns = replica.cache, replica.book.now_ns
    if cache is None or not replica.tiers:
        return None
    tokens = sequence.request.prompt_tokens + sequence.generated
    ids = cache.identities(sequence.request)
    usable = [ids[:n] for n in range(1, len(ids) + 1) if n * cache.block_tokens < tokens]
    allowed: list[TierState] = []
    best = longest(replica, usable, allowed)
    for tier in replica.tiers:
        further = longest(replica, usable, [*allowed, tier])
        keys = keys_in(replica, tier, usable[:further])
        landing_ns = tier.landed_ns(sum(key[1] for key in keys), now_ns) - now_ns
        if further > best and (
            replica.load_policy == "always" or landing_ns <= prefill_ns(replica, best, further, chunk_tokens)
        ):
            allowed, best = [*allowed, tier], further
    items = [(tier, keys_in(replica, tier, usable[:best])) for tier in allowed]
    items = [(tier, keys) for tier, keys in items if keys]
    return Load(sequence, replica.index, best, items) if items else None


def where(replica: "FleetReplica", what: str, past: Past) -> "TierState | str | None":
    """The first place, from the device down, in which an item can be hit."""
    assert replica.cache is not None
    block = replica.cache.held.get(past)
    if block is not None and {"block": True, "snapshot": block.snapshot, "window": block.window}[what]:
        return "device"
    key = key_of(replica, what, past)
    return next((tier for tier in replica.tiers if tier.has(key, replica.book.now_ns)), None)


def needed(replica: "FleetReplica", chain: Listed[Past]) -> list[tuple[str, Past]]:
    """What a hit of these blocks, one after the other, reads: all of them, the last state, the windows at the end."""
    assert replica.cache is not None
    items = [("block", past) for past in chain]
    if chain and replica.cache.snapshot_every:
        items.append(("snapshot", chain[-1]))
    if chain:
        items += [("window", past) for past in replica.cache.last_ones(chain[-1])]
    return items


def longest(replica: "FleetReplica", usable: Listed[Past], allowed: Listed[TierState]) -> int:
    """Blocks of the longest hit that reads nothing but the device and these tiers."""
    places: list[object] = ["device", *allowed]

    def can(n: int) -> bool:
        return all(any(where(replica, *item) is place for place in places) for item in needed(replica, usable[:n]))

    return max((n for n in range(1, len(usable) + 1) if can(n)), default=0)


def keys_in(replica: "FleetReplica", tier: TierState, chain: Listed[Past]) -> list[Key]:
    """What a hit of these blocks reads in this tier."""
    return [key_of(replica, *item) for item in needed(replica, chain) if where(replica, *item) is tier]


def prefill_ns(replica: Replica, from_block: int, to_block: int, chunk_tokens: int) -> int:
    """The summed service of these blocks' tokens in chunks, alone in their microbatches, at nominal times."""
    assert replica.cache is not None
    written, until = (n * replica.cache.block_tokens for n in (from_block, to_block))
    total_ns = 0
    while written < until:
        tokens = min(chunk_tokens, until - written)
        totals = BatchTotals(
            prefill_sequences=1,
            prefill_tokens=tokens,
            prefill_kv_tokens=written + tokens,
            prefill_pairs=causal_pairs(written, tokens),
        )
        plan = replica.plan
        total_ns += sum(compile_cost(plan.costs[visit.cost]).service_ns(totals) for visit in plan.visits)
        written += tokens
    return total_ns


def start(replica: "FleetReplica", load: Load) -> bool:
    """Take the room on the device, then the ports; False, and nothing has changed but last uses, if there is none."""
    cache, sequence, now_ns = replica.cache, load.sequence, replica.book.now_ns
    assert cache is not None
    ids = cache.identities(sequence.request)
    sequence.shared = sum(ids[:n] in cache.held for n in range(1, load.blocks + 1))
    cache.hold(ids, sequence.shared)
    replica.mirror_cache(sequence)
    loaded_tokens = load.blocks * cache.block_tokens
    held_tokens = kv.admission_tokens(replica.scheduling, sequence.request, loaded_tokens)
    if sequence.whole:
        held_tokens = kv.max_tokens(replica.scheduling, sequence.request)
    load.pin(1)
    if not sharing.find_room(replica, sequence, held_tokens):
        load.pin(-1)
        sharing.forget(replica, sequence)
        return False
    replica.hold(sequence, held_tokens)
    replica.grant(sequence)
    sequence.written_tokens = loaded_tokens
    sequence.todo_tokens -= loaded_tokens
    sequence.awaited = sequence.fixed = True
    load.start_ns = now_ns
    load.landed_ns = max([tier.load(keys, now_ns) for tier, keys in load.items])
    return True


def record(replica: "FleetReplica", load: Load) -> LoadRecord:
    """What a request tells of it."""
    assert replica.cache is not None
    tokens = {
        id(tier): replica.cache.block_tokens * sum(key[2] == "block" for key in keys) for tier, keys in load.items
    }
    return LoadRecord(
        host_tokens=tokens.get(id(replica.host), 0),
        store_tokens=tokens.get(id(replica.store), 0),
        start_ns=load.start_ns,
        landed_ns=load.landed_ns,
    )
