"""What lies below the prefix cache of one replica (rule 12): KV that goes down to tiers, and hits that reach them."""

from collections.abc import Sequence as Seq
from typing import NamedTuple, Protocol

from stageline.engine.fleet import LoadPolicy, Offload
from stageline.engine.prefix import HashBlock
from stageline.engine.prompt_cache import PromptCache
from stageline.engine.sequence import Sequence
from stageline.engine.tier import ChainIds, ItemKind, ItemName, KvTier
from stageline.engine.types import Request

DEVICE, MISS = 0, -1  # places of an item; tiers are 1, 2 from the top


class Clock(Protocol):
    """The emulated time of what the router is doing."""

    now_ns: int


class TierRules(NamedTuple):
    """What all replicas of a fleet have in common."""

    offload: Offload
    load: LoadPolicy
    sees_host: bool  # whether routing counts what can be hit in host memory
    chains: ChainIds
    clock: Clock


class Hit(NamedTuple):
    """A hit that reads something below the device."""

    tokens: int
    block_tokens: int  # of each block
    chain: list[HashBlock]  # those of its blocks that are on the device
    reads: list[tuple[KvTier, list[ItemName]]]  # by tier from the top, the deepest items first; none is empty

    def unpin(self) -> None:
        """Undo `Below.pin`."""
        for tier, names in self.reads:
            tier.unpin(names)


class Below:
    """The tiers of one replica from the top, the store last."""

    def __init__(self, cache: PromptCache, host: KvTier | None, store: KvTier | None, rules: TierRules) -> None:
        self.cache, self.host, self.store, self.rules = cache, host, store, rules
        self.tiers = [tier for tier in (host, store) if tier is not None]
        self._sizes = cache.item_bytes()
        cache.chains = rules.chains
        if rules.offload == "evict":
            cache.evicts_to = self
        else:
            cache.completed = []

    # -- down

    def evicted(self, kind: ItemKind, block: HashBlock) -> None:
        """The prefix cache has evicted this of a block."""
        self.tiers[0].put(self._name(kind, block.chain), self.rules.clock.now_ns)

    def computed(self, blocks: Seq[HashBlock]) -> None:
        """A microbatch is back that completed these blocks of a sequence: with write-through they go down now."""
        for block in reversed(blocks):
            self.evicted("block", block)
            if block.snapshot:
                self.evicted("snapshot", block)
            if block.window:
                self.evicted("window", block)

    def _name(self, kind: ItemKind, chain: int) -> ItemName:
        return ItemName(kind, self.cache.model, self._sizes[kind], chain)

    # -- up

    def longer_hit(self, sequence: Sequence) -> Hit | None:
        """The hit of a sequence about to be admitted, if it reads tiers; None: what the device has is the hit."""
        keys = self.cache.identities(sequence.request)[: (sequence.todo_tokens - 1) // self.cache.hash_block_tokens]
        found = self._look(keys, self.tiers)
        places = [DEVICE]
        best = found.longest(places)
        for place, tier in enumerate(self.tiers, 1):
            longer = found.longest([*places, place])
            if longer > best and self._worth_it(tier, self._reads(found, longer, place), best, longer):
                places.append(place)
                best = longer
        if len(places) == 1:
            return None
        reads = [(self.tiers[place - 1], self._reads(found, best, place)) for place in places[1:]]
        tokens = self.cache.hash_block_tokens
        return Hit(best * tokens, tokens, found.chain[:best], [r for r in reads if r[1]])

    def pin(self, hit: Hit) -> None:
        """Nothing that it reads in a tier is evicted until `Hit.unpin`."""
        for tier, names in hit.reads:
            tier.pin(names, self.rules.clock.now_ns)

    def seen_blocks(self, request: Request) -> int:
        """Blocks of a prompt that can be hit on the device and in host memory."""
        keys = request.hash_ids[: (request.prompt_tokens - 1) // self.cache.hash_block_tokens]
        tiers = [self.host] if self.host is not None else []
        return self._look(keys, tiers).longest(range(len(tiers) + 1))

    def _worth_it(self, tier: KvTier, names: Seq[ItemName], before: int, after: int) -> bool:
        """Whether reading these items takes no longer than the prefill of the blocks that the hit grows by."""
        if self.rules.load == "always":
            return True
        now_ns, tokens = self.rules.clock.now_ns, self.cache.hash_block_tokens
        landing_ns = tier.landing_ns(sum(name.size_bytes for name in names), now_ns)
        return landing_ns - now_ns <= self.cache.prefill_ns(before * tokens, after * tokens)

    def _look(self, keys: Seq[int], tiers: Seq[KvTier]) -> "Found":
        """Where every block of a prompt is, up to the first that is nowhere."""
        cache, clock = self.cache, self.rules.clock
        found = Found(cache.snapshot_hash_blocks, cache.window_hash_blocks)
        found.chain = cache.resident_chain(keys, len(keys) * cache.hash_block_tokens)

        def place_of(kind: ItemKind, chain: int) -> int:
            name = self._name(kind, chain)
            return next((i for i, tier in enumerate(tiers, 1) if tier.can_hit(name, clock.now_ns)), MISS)

        chain = 0
        for i, key in enumerate(keys):
            block = found.chain[i] if i < len(found.chain) else None
            known = block.chain if block is not None else self.rules.chains.find(chain, key)
            if known is None:
                break
            chain = known
            place = DEVICE if block is not None else place_of("block", chain)
            if place == MISS:
                break
            found.chains.append(chain)
            found.blocks.append(place)
            if found.snapshot_hash_blocks:
                kept = block is not None and block.snapshot
                found.snapshots.append(DEVICE if kept else place_of("snapshot", chain))
            if found.window_hash_blocks:
                kept = block is not None and block.window
                found.windows.append(DEVICE if kept else place_of("window", chain))
        return found

    def _reads(self, found: "Found", blocks: int, place: int) -> list[ItemName]:
        """What a hit of so many blocks reads at a place, the deepest first."""
        names = []
        for i in reversed(range(blocks)):
            if found.blocks[i] == place:
                names.append(self._name("block", found.chains[i]))
            if found.snapshot_hash_blocks and i == blocks - 1 and found.snapshots[i] == place:
                names.append(self._name("snapshot", found.chains[i]))
            if i >= blocks - found.window_hash_blocks and found.windows[i] == place:
                names.append(self._name("window", found.chains[i]))
        return names


class Found:
    """Places of the blocks of one prompt, and of what lies beside them."""

    __slots__ = ("blocks", "chain", "chains", "snapshot_hash_blocks", "snapshots", "window_hash_blocks", "windows")

    def __init__(self, snapshot_hash_blocks: int, window_hash_blocks: int) -> None:
        self.snapshot_hash_blocks, self.window_hash_blocks = snapshot_hash_blocks, window_hash_blocks
        self.chain: list[HashBlock] = []  # on the device
        self.chains: list[int] = []
        self.blocks: list[int] = []
        self.snapshots: list[int] = []  # empty where the model has no states
        self.windows: list[int] = []  # empty where it has no windows

    def longest(self, places: Seq[int]) -> int:
        """Blocks of the longest hit that these places allow."""
        windows = usable = 0
        for i, place in enumerate(self.blocks):
            if place not in places:
                break
            if self.window_hash_blocks:
                windows = windows + 1 if self.windows[i] in places else 0
            read = windows >= min(i + 1, self.window_hash_blocks)
            if read and (not self.snapshot_hash_blocks or self.snapshots[i] in places):
                usable = i + 1
        return usable
