"""A tier of KV below prefix caches (rule 12): the host memory of a replica, or the store of a fleet.

It keeps items under names, in the order of their last use. Reads and writes have one FIFO each.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Literal, NamedTuple

from stageline.engine.fleet import Tier
from stageline.engine.ports import moving_ns
from stageline.engine.types import TierStats

SWEEP_ENTRIES = 4096  # in the heap of idle items before stale ones are swept out

ItemKind = Literal["block", "snapshot", "window"]


class ItemName(NamedTuple):
    """What an item is: KV of a block, a state snapshot or window KV, and of what model, size and hash chain."""

    kind: ItemKind
    model: str
    size_bytes: int
    chain: int  # see ChainIds


class Item:
    """What a tier keeps under a name."""

    __slots__ = ("idle", "last_use", "name", "pins", "written_ns")

    def __init__(self, name: ItemName, written_ns: int) -> None:
        self.name = name
        self.written_ns = written_ns  # from then on it can be hit
        self.last_use = 0
        self.pins = 0  # loads under way that read it
        self.idle = False  # written and not pinned: it may be evicted


class ChainIds:
    """Numbers the hash chains of blocks, from 1: the same one for the same keys from the start of the prompt on."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, int], int] = {}

    def find(self, parent: int, key: int) -> int | None:
        """The chain that goes on from `parent` (0: the start of a prompt) with a block of that key; None: a new one."""
        return self._ids.get((parent, key))

    def give(self, parent: int, key: int) -> int:
        """As `find`; a new chain gets a number."""
        return self._ids.setdefault((parent, key), len(self._ids) + 1)


class KvTier:
    """One tier: least recently used items are evicted for new ones, and go to the tier `below`, if there is one."""

    def __init__(self, tier: Tier, below: "KvTier | None" = None) -> None:
        self._tier, self._below = tier, below
        self._items: dict[ItemName, Item] = {}
        self._writing: deque[Item] = deque()  # in the order in which their writes end
        self._idle: list[tuple[int, Item]] = []  # heap by last use; entries may be stale
        self._most_entries = SWEEP_ENTRIES
        self._idle_bytes = 0
        self._tick = 0
        self._write_free_ns = self._read_free_ns = 0
        self.used_bytes = self._peak_bytes = self._written_bytes = self._read_bytes = 0
        self._hit_blocks = self._hit_tokens = 0
        self._written_blocks = self._evicted_blocks = self._dropped_blocks = 0

    # -- down

    def put(self, name: ItemName, now_ns: int) -> None:
        """An item comes down. It is used, if it is here already; written, if room can be made; else dropped."""
        item = self._items.get(name)
        if item is not None:
            self._use(item)
            return
        if not self._make_room(name.size_bytes, now_ns):
            self._dropped_blocks += name.kind == "block"
            return
        self._write_free_ns = max(now_ns, self._write_free_ns) + moving_ns(
            name.size_bytes, self._tier.write_bytes_per_s
        )
        item = self._items[name] = Item(name, self._write_free_ns)
        self._writing.append(item)
        self.used_bytes += name.size_bytes
        self._peak_bytes = max(self._peak_bytes, self.used_bytes)
        self._written_bytes += name.size_bytes
        self._written_blocks += name.kind == "block"
        self._use(item)

    def _make_room(self, size_bytes: int, now_ns: int) -> bool:
        """Evict as little as needed; nothing if that would not be enough."""
        self._settle(now_ns)
        free_bytes = self._tier.capacity_bytes - self.used_bytes
        if size_bytes > free_bytes + self._idle_bytes:
            return False
        while size_bytes > self._tier.capacity_bytes - self.used_bytes:
            last_use, item = heapq.heappop(self._idle)
            if item.idle and item.last_use == last_use:
                self._evict(item, now_ns)
        return True

    def _evict(self, item: Item, now_ns: int) -> None:
        item.idle = False
        del self._items[item.name]
        self.used_bytes -= item.name.size_bytes
        self._idle_bytes -= item.name.size_bytes
        self._evicted_blocks += item.name.kind == "block"
        if self._below is not None:
            self._below.put(item.name, now_ns)

    # -- up

    def can_hit(self, name: ItemName, now_ns: int) -> bool:
        """Whether it is here, and written."""
        item = self._items.get(name)
        return item is not None and item.written_ns <= now_ns

    def landing_ns(self, size_bytes: int, now_ns: int) -> int:
        """When so many bytes would be on the device if their read were booked now."""
        return self._read_end_ns(size_bytes, now_ns) + self._tier.latency_ns

    def pin(self, names: Iterable[ItemName], now_ns: int) -> None:
        """Items that can be hit are not evicted until `unpin`."""
        self._settle(now_ns)
        for name in names:
            item = self._items[name]
            item.pins += 1
            if item.idle:
                item.idle = False
                self._idle_bytes -= name.size_bytes

    def unpin(self, names: Iterable[ItemName]) -> None:
        """Undo a `pin`."""
        for name in names:
            item = self._items[name]
            item.pins -= 1
            if not item.pins:
                self._offer(item)

    def read(self, names: Seq[ItemName], hash_block_tokens: int, now_ns: int) -> int:
        """Read and use these items in their order, all at once; returns when they are on the device."""
        size_bytes = sum(name.size_bytes for name in names)
        self._read_free_ns = self._read_end_ns(size_bytes, now_ns)
        self._read_bytes += size_bytes
        for name in names:
            self._use(self._items[name])
        blocks = sum(name.kind == "block" for name in names)
        self._hit_blocks += blocks
        self._hit_tokens += blocks * hash_block_tokens
        return self._read_free_ns + self._tier.latency_ns

    def _read_end_ns(self, size_bytes: int, now_ns: int) -> int:
        return max(now_ns, self._read_free_ns) + moving_ns(size_bytes, self._tier.read_bytes_per_s)

    # -- what laws and reports ask for

    @property
    def pins(self) -> dict[ItemName, int]:
        """How many loads under way read an item, of those that any reads."""
        return {name: item.pins for name, item in self._items.items() if item.pins}

    def sums(self) -> tuple[int, int]:
        """Bytes of all items, and of those that may be evicted, counted one by one."""
        return (
            sum(item.name.size_bytes for item in self._items.values()),
            sum(item.name.size_bytes for item in self._items.values() if item.idle),
        )

    @property
    def capacity_bytes(self) -> int:
        """What it can hold."""
        return self._tier.capacity_bytes

    @property
    def idle_bytes(self) -> int:
        """What could be evicted when room was last made, an item pinned or an item used."""
        return self._idle_bytes

    def stats(self, replica: int | None) -> TierStats:
        """Totals so far; `replica` None: the store."""
        return TierStats(
            replica=replica, capacity_bytes=self._tier.capacity_bytes, peak_bytes=self._peak_bytes,
            hit_blocks=self._hit_blocks, hit_tokens=self._hit_tokens, read_bytes=self._read_bytes,
            written_bytes=self._written_bytes, written_blocks=self._written_blocks,
            evicted_blocks=self._evicted_blocks, dropped_blocks=self._dropped_blocks,
        )  # fmt: skip

    # -- inside

    def _settle(self, now_ns: int) -> None:
        """What is written by now may be evicted."""
        while self._writing and self._writing[0].written_ns <= now_ns:
            item = self._writing.popleft()
            if not item.pins:
                self._offer(item)

    def _offer(self, item: Item) -> None:
        item.idle = True
        self._idle_bytes += item.name.size_bytes
        self._push(item)

    def _use(self, item: Item) -> None:
        self._tick += 1
        item.last_use = self._tick
        if item.idle:
            self._push(item)

    def _push(self, item: Item) -> None:
        heapq.heappush(self._idle, (item.last_use, item))
        if len(self._idle) > self._most_entries:
            self._idle = [(i.last_use, i) for i in self._items.values() if i.idle]
            heapq.heapify(self._idle)
            self._most_entries = max(SWEEP_ENTRIES, 2 * len(self._idle))
