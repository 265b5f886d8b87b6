"""The prefix cache of one replica (rule 8): blocks of prompts and answers, their users, and the order of eviction.

A hash block (one hash id of the workload, one or more KV blocks long) hangs below the block before it in the prompt.
The block owns its KV, so it counts once in every ledger, however many requests use it. A state snapshot, and a copy of
what sliding windows keep of the block (window KV), are read only when a request is admitted, so they can be evicted
while their block is in use.
"""

import heapq
from collections.abc import Sequence as Seq
from itertools import zip_longest
from typing import Protocol

from stageline.engine.microbatch import Grant
from stageline.engine.mirror import KvMirror
from stageline.engine.tier import ChainIds, ItemKind

SWEEP_ENTRIES = 4096  # in the heap of idle blocks before stale ones are swept out
SNAPSHOT, WINDOW = 1, 2  # what an owner's number tells of a block's; 0: the block itself


class HashBlock:
    """A resident block.

    Ledgers know it as `owner`, its snapshot as `owner` - SNAPSHOT, its window KV as `owner` - WINDOW: negative numbers,
    unlike a request's.
    """

    __slots__ = (
        "chain", "children", "depth", "key", "last_use", "owner", "parent", "snapshot", "users", "window", "window_use",
    )  # fmt: skip

    def __init__(self, key: int, parent: "HashBlock | None", owner: int) -> None:
        self.key, self.parent, self.owner = key, parent, owner
        self.depth: int = parent.depth + 1 if parent else 0
        self.chain = 0  # number of its hash chain; 0 without tiers
        self.children: dict[int, HashBlock] = {}
        self.users = 0  # running sequences that hold it
        self.last_use = 0
        self.snapshot = False  # whether the linear layers' state after this block is kept
        self.window = False  # whether its window KV is kept
        self.window_use = 0


class EvictsTo(Protocol):
    """Where evicted KV goes."""

    def evicted(self, kind: ItemKind, block: HashBlock) -> None:
        """This of a block was evicted."""
        ...


class PrefixCache:
    """A radix tree of hash blocks: longest-prefix match, reference counts, eviction by last use, deepest first.

    `hash_block_tokens`: tokens per hash id. With linear layers a hit ends at the last state snapshot:
    `snapshot_hash_blocks` is the distance of snapshots in hash blocks, 0 when the model has no state. With sliding
    windows a hit needs the window KV of its last blocks, `window_hash_blocks` of them, 0 when the model has no windows.
    """

    def __init__(self, mirror: KvMirror, hash_block_tokens: int, snapshot_hash_blocks: int) -> None:
        self.mirror = mirror
        self.hash_block_tokens = hash_block_tokens
        self.kv_blocks = mirror.blocks_for(hash_block_tokens)
        self.snapshot_hash_blocks = snapshot_hash_blocks
        self.window_hash_blocks = -(-max(mirror.caps, default=0) // self.kv_blocks)
        self._window_kept = mirror.kept_of(self.kv_blocks)  # by the window KV of one block
        self.evicted: list[int] = []  # owners whose KV is freed with the next microbatch
        self.evicted_blocks = 0
        self.chains: ChainIds | None = None  # numbers them for the tiers below; None: there are none
        self.evicts_to: EvictsTo | None = None
        self._root = HashBlock(0, None, 0)
        self._made = 0
        self._tick = 0
        # Heap of what may be evicted, by last use; of equal ones blocks before window KV. Entries may be stale.
        self._idle: list[_Entry] = []
        self._most_entries = SWEEP_ENTRIES
        self._idle_blocks = 0
        self._snapshots = 0
        self._windows = 0
        self._fresh: list[HashBlock] = []  # their snapshots are granted by the microbatch being formed
        self._fresh_windows: dict[int, HashBlock] = {}  # by owner: their window KV is

    def match(self, hash_ids: Seq[int], tokens: int) -> list[HashBlock]:
        """The longest usable resident chain of full blocks. At least one of `tokens` is left to compute."""
        chain: list[HashBlock] = []
        block, windows, usable = self._root, 0, 0
        for key in hash_ids[: (tokens - 1) // self.hash_block_tokens]:
            found = block.children.get(key)
            if found is None:
                break
            chain.append(found)
            block = found
            windows = windows + 1 if found.window else 0  # in a row, up to here
            read = windows >= min(len(chain), self.window_hash_blocks)
            if read and (found.snapshot or not self.snapshot_hash_blocks):
                usable = len(chain)
        del chain[usable:]
        return chain

    def resident_chain(self, hash_ids: Seq[int], tokens: int) -> list[HashBlock]:
        """The longest resident chain of full blocks of the first `tokens` tokens."""
        chain: list[HashBlock] = []
        block: HashBlock | None = self._root
        for key in hash_ids[: tokens // self.hash_block_tokens]:
            block = block.children.get(key) if block is not None else None
            if block is None:
                break
            chain.append(block)
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
        self.use_windows(chain)
        if len(self._idle) > self._most_entries:
            self._sweep()

    def use_windows(self, chain: Seq[HashBlock]) -> None:
        """The window KV at the end of a chain is read, or was until now."""
        for block in chain[-self.window_hash_blocks :] if self.window_hash_blocks else ():
            block.window_use = self._tick
            self._offer_window(block)

    def extend(
        self, chain: list[HashBlock], key: int, request: int, grants: list[Grant], *, computed: bool = True
    ) -> None:
        """Cache the next block of a prompt, which has just been dispatched, and append it to `chain`, held.

        Its KV passes from the request to the block. If the same block is already resident, the request's KV is freed.
        """
        parent = chain[-1] if chain else self._root
        block = parent.children.get(key)
        grants.append((request, -self.kv_blocks, 0, 0))
        if block is not None:
            self.hold(block)
            self.mirror.free(self.kv_blocks, 0)
        else:
            self._made += 3
            block = parent.children[key] = HashBlock(key, parent, WINDOW - self._made)
            block.users = 1
            if self.chains is not None:
                block.chain = self.chains.give(parent.chain, key)
            grants.append((block.owner, self.kv_blocks, 0, 0))
            if computed and self.snapshot_hash_blocks and block.depth % self.snapshot_hash_blocks == 0:
                self._keep_state(block, grants)
        chain.append(block)

    def keep_windows(self, completed: Seq[HashBlock], grants: list[Grant]) -> None:
        """Keep the window KV of blocks that were computed one after the other, as far as room can be made."""
        for block in reversed(completed):
            if not block.window and self.make_room(0, 0, self._window_kept):
                block.window = True
                block.window_use = self._tick
                self.mirror.allocate(0, 0, self._window_kept)
                grants.append((block.owner - WINDOW, 0, 0, self.kv_blocks))
                self._fresh_windows[block.owner] = block

    def hash_blocks(self) -> list[HashBlock]:
        """All resident blocks, by walking the tree; for the laws."""
        blocks, stack = [], list(self._root.children.values())
        while stack:
            blocks.append(stack.pop())
            stack.extend(blocks[-1].children.values())
        return blocks

    def resident(self) -> tuple[int, int, list[int]]:
        """KV blocks, states and what windows keep of all blocks, counted one by one; for the laws."""
        blocks = self.hash_blocks()
        windows = sum(n.window for n in blocks)
        return len(blocks) * self.kv_blocks, sum(n.snapshot for n in blocks), [windows * n for n in self._window_kept]

    def make_room(self, blocks: int, states: int, kept: Seq[int] = ()) -> bool:
        """Whether that much more fits after evicting as little as needed. Evicts nothing if it can't fit."""
        mirror = self.mirror
        if mirror.fits(blocks, states, kept):
            return True
        idle_blocks, idle_states, idle_kept = self.evictable()
        least = [n - idle for n, idle in zip_longest(kept, idle_kept, fillvalue=0)]
        if not mirror.fits(blocks - idle_blocks, states - idle_states, least):
            return False
        while not mirror.fits(blocks, states, kept):
            self.evict_one()
        return True

    def evictable(self) -> tuple[int, int, list[int]]:
        """KV blocks, states and blocks kept in every window that eviction would free."""
        kept = [self._windows * copy for copy in self._window_kept]
        return self._idle_blocks * self.kv_blocks, self._snapshots, kept

    def evict_one(self) -> bool:
        """Evict the least recently used block, snapshot or window KV, deepest first. False when all are in use."""
        while self._idle:
            entry = heapq.heappop(self._idle)
            owner, block = entry[2:]
            if block.parent is None or _used_since(entry):
                continue  # stale
            if owner == block.owner - WINDOW:
                if block.window and block.owner not in self._fresh_windows:  # a fresh one is offered again
                    self._drop_window(block)
                    return True
            elif owner != block.owner:
                if block.snapshot:
                    self._drop_state(block)
                    return True
            elif not block.users and not block.children:  # otherwise it is offered again once it is idle
                self._remove(block, block.parent)
                return True
        return False

    def take_evicted(self) -> tuple[int, ...]:
        """Owners whose KV is freed with the microbatch that leaves now. What it grants can be evicted from now on."""
        for block in self._fresh:
            self._snapshots += 1
            self._offer(block)
        fresh_windows, self._fresh_windows = self._fresh_windows, {}
        for block in fresh_windows.values():
            self._windows += 1
            self._offer_window(block)
        evicted, self.evicted, self._fresh = tuple(self.evicted), [], []
        return evicted

    def clear(self) -> None:
        """Evict everything: the run is over and no block has users. Nothing goes to a tier."""
        self.evicts_to = None
        while self.evict_one():
            pass

    def _keep_state(self, block: HashBlock, grants: list[Grant]) -> None:
        if self.make_room(0, 1):
            block.snapshot = True
            block.last_use = self._tick
            self.mirror.allocate(0, 1)
            grants.append((block.owner - SNAPSHOT, 0, 1, 0))
            self._fresh.append(block)

    def _drop_window(self, block: HashBlock) -> None:
        if self.evicts_to is not None:
            self.evicts_to.evicted("window", block)
        block.window = False
        self._windows -= 1
        self.mirror.free(0, 0, self._window_kept)
        self.evicted.append(block.owner - WINDOW)

    def _drop_state(self, block: HashBlock) -> None:
        if self.evicts_to is not None:
            self.evicts_to.evicted("snapshot", block)
        block.snapshot = False
        self._snapshots -= 1
        self.mirror.free(0, 1)
        self.evicted.append(block.owner - SNAPSHOT)

    def _remove(self, block: HashBlock, parent: HashBlock) -> None:
        if block.window:
            self._drop_window(block)
        if block.snapshot:
            self._drop_state(block)
        if self.evicts_to is not None:
            self.evicts_to.evicted("block", block)
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
        self._idle = list({e[:3]: e for e in self._idle if e[3].parent and not _used_since(e)}.values())
        heapq.heapify(self._idle)
        self._most_entries = max(SWEEP_ENTRIES, 2 * len(self._idle))

    def _offer(self, block: HashBlock) -> None:
        if block.snapshot:
            heapq.heappush(self._idle, (block.last_use, -block.depth, block.owner - SNAPSHOT, block))
        if not block.users and not block.children:
            heapq.heappush(self._idle, (block.last_use, -block.depth, block.owner, block))

    def _offer_window(self, block: HashBlock) -> None:
        if block.window and block.owner not in self._fresh_windows:
            heapq.heappush(self._idle, (block.window_use, block.depth + 1, block.owner - WINDOW, block))


# Last use; -depth (of a block or a snapshot) or depth + 1 (window KV); owner: a snapshot goes before its block; block.
_Entry = tuple[int, int, int, HashBlock]


def _used_since(entry: _Entry) -> bool:
    """Whether what may be evicted was used after this was said of it."""
    last_use, _, owner, block = entry
    return last_use != (block.window_use if owner == block.owner - WINDOW else block.last_use)
