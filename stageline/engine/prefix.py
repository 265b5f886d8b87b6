"""The prefix cache of one replica (rule 8): blocks of prompts and answers, their users, and the order of eviction.

A hash block (one hash id of the workload, one or more KV blocks long) hangs below the block before it in the prompt.
The block owns its KV, so it counts once in every ledger, however many requests use it. A state snapshot is read
only when a request is admitted, so it can be evicted while its block is in use.
"""

import heapq
from collections.abc import Sequence as Seq

from stageline.engine.mirror import KvMirror

SWEEP_ENTRIES = 4096  # in the heap of idle blocks before stale ones are swept out
Grant = tuple[int, int, int]  # owner, blocks added, states added


class HashBlock:
    """A resident block. Ledgers know it as `owner` and its snapshot as `owner` - 1: negative, unlike a request."""

    __slots__ = ("children", "depth", "key", "last_use", "owner", "parent", "snapshot", "users")

    def __init__(self, key: int, parent: "HashBlock | None", owner: int) -> None:
        self.key, self.parent, self.owner = key, parent, owner
        self.depth: int = parent.depth + 1 if parent else 0
        self.children: dict[int, HashBlock] = {}
        self.users = 0  # running sequences that hold it
        self.last_use = 0
        self.snapshot = False  # whether the linear layers' state after this block is kept


class PrefixCache:
    """A radix tree of hash blocks: longest-prefix match, reference counts, eviction by last use, deepest first.

    `hash_block_tokens`: tokens per hash id. With linear layers a hit ends at the last state snapshot:
    `snapshot_hash_blocks` is the distance of snapshots in hash blocks, 0 when the model has no state.
    """

    def __init__(self, mirror: KvMirror, hash_block_tokens: int, snapshot_hash_blocks: int) -> None:
        self.mirror = mirror
        self.hash_block_tokens = hash_block_tokens
        self.kv_blocks = mirror.blocks_for(hash_block_tokens)
        self.snapshot_hash_blocks = snapshot_hash_blocks
        self.evicted: list[int] = []  # owners whose KV is freed with the next microbatch
        self.evicted_blocks = 0
        self._root = HashBlock(0, None, 0)
        self._made = 0
        self._tick = 0
        # Heap of what may be evicted: last use, -depth, owner (a snapshot before its block). Entries may be stale.
        self._idle: list[tuple[int, int, int, HashBlock]] = []
        self._most_entries = SWEEP_ENTRIES
        self._idle_blocks = 0
        self._snapshots = 0
        self._fresh: list[HashBlock] = []  # their snapshots are granted by the microbatch being formed

    def match(self, hash_ids: Seq[int], tokens: int) -> list[HashBlock]:
        """The longest usable resident chain of full blocks. At least one of `tokens` is left to compute."""
        chain: list[HashBlock] = []
        block = self._root
        for key in hash_ids[: (tokens - 1) // self.hash_block_tokens]:
            found = block.children.get(key)
            if found is None:
                break
            chain.append(found)
            block = found
        while self.snapshot_hash_blocks and chain and not chain[-1].snapshot:
            chain.pop()
        return chain

    def hold(self, block: HashBlock) -> None:
        """Add a user."""
        if not block.users:
            self._idle_blocks -= 1
        block.users += 1

    def let_go(self, chain: Seq[HashBlock]) -> None:
        """Remove a user from each block of a chain. Blocks without users stay until they are evicted."""
        self._tick += 1
        for block in chain:
            block.users -= 1
            block.last_use = self._tick
            self._idle_blocks += not block.users
            self._offer(block)
        if len(self._idle) > self._most_entries:
            self._sweep()

    def extend(self, chain: list[HashBlock], key: int, request: int, grants: list[Grant]) -> None:
        """Cache the next block of a prompt, which has just been dispatched, and append it to `chain`, held.

        Its KV passes from the request to the block. If the same block is already resident, the request's KV is freed.
        """
        parent = chain[-1] if chain else self._root
        block = parent.children.get(key)
        grants.append((request, -self.kv_blocks, 0))
        if block is not None:
            self.hold(block)
            self.mirror.free(self.kv_blocks, 0)
        else:
            self._made += 2
            block = parent.children[key] = HashBlock(key, parent, 1 - self._made)
            block.users = 1
            grants.append((block.owner, self.kv_blocks, 0))
            if self.snapshot_hash_blocks and block.depth % self.snapshot_hash_blocks == 0:
                self._keep_state(block, grants)
        chain.append(block)

    def hash_blocks(self) -> list[HashBlock]:
        """All resident blocks, by walking the tree; for the laws."""
        blocks, stack = [], list(self._root.children.values())
        while stack:
            blocks.append(stack.pop())
            stack.extend(blocks[-1].children.values())
        return blocks

    def resident(self) -> tuple[int, int]:
        """KV blocks and states of all blocks, counted one by one; for the laws."""
        blocks = self.hash_blocks()
        return len(blocks) * self.kv_blocks, sum(n.snapshot for n in blocks)

    def make_room(self, blocks: int, states: int) -> bool:
        """Whether that much more fits after evicting as little as needed. Evicts nothing if it can't fit."""
        mirror = self.mirror
        if mirror.fits(blocks, states):
            return True
        if not mirror.fits(blocks - self._idle_blocks * self.kv_blocks, states - self._snapshots):
            return False
        while not mirror.fits(blocks, states):
            self.evict_one()
        return True

    def evict_one(self) -> bool:
        """Evict the least recently used block or snapshot, deepest first. False when all are in use."""
        while self._idle:
            last_use, _, owner, block = heapq.heappop(self._idle)
            if block.parent is None or block.last_use != last_use:
                continue  # stale: evicted, or used since
            if owner != block.owner:
                if block.snapshot:
                    self._drop_state(block)
                    return True
            elif not block.users and not block.children:  # otherwise it is offered again once it is idle
                self._remove(block, block.parent)
                return True
        return False

    def take_evicted(self) -> tuple[int, ...]:
        """Owners whose KV is freed with the microbatch that leaves now. Its snapshots can be evicted from now on."""
        for block in self._fresh:
            self._snapshots += 1
            self._offer(block)
        evicted, self.evicted, self._fresh = tuple(self.evicted), [], []
        return evicted

    def clear(self) -> None:
        """Evict everything: the run is over and no block has users."""
        while self.evict_one():
            pass

    def _keep_state(self, block: HashBlock, grants: list[Grant]) -> None:
        if self.make_room(0, 1):
            block.snapshot = True
            block.last_use = self._tick
            self.mirror.allocate(0, 1)
            grants.append((block.owner - 1, 0, 1))
            self._fresh.append(block)

    def _drop_state(self, block: HashBlock) -> None:
        block.snapshot = False
        self._snapshots -= 1
        self.mirror.free(0, 1)
        self.evicted.append(block.owner - 1)

    def _remove(self, block: HashBlock, parent: HashBlock) -> None:
        if block.snapshot:
            self._drop_state(block)
        del parent.children[block.key]
        block.parent = None
        self.mirror.free(self.kv_blocks, 0)
        self._idle_blocks -= 1
        self.evicted.append(block.owner)
        self.evicted_blocks += 1
        if parent is not self._root:
            self._offer(parent)

    def _sweep(self) -> None:
        """Remove stale entries: blocks that are used again and again without an eviction would fill the heap."""
        self._idle = list({e[:3]: e for e in self._idle if e[3].parent and e[3].last_use == e[0]}.values())
        heapq.heapify(self._idle)
        self._most_entries = max(SWEEP_ENTRIES, 2 * len(self._idle))

    def _offer(self, block: HashBlock) -> None:
        if block.snapshot:
            heapq.heappush(self._idle, (block.last_use, -block.depth, block.owner - 1, block))
        if not block.users and not block.children:
            heapq.heappush(self._idle, (block.last_use, -block.depth, block.owner, block))
