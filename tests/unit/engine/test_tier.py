"""One tier: room, order of eviction, pins, and the FIFOs of writes and reads. Times in ns at 1 byte/ns."""

import random
from collections import Counter
from unittest import mock

import pytest

from stageline.engine import tier as module
from stageline.engine.fleet import Tier
from stageline.engine.tier import ChainIds, ItemName, KvTier


def name(chain: int, size_bytes: int = 10, kind: module.ItemKind = "block") -> ItemName:
    return ItemName(kind, "model", size_bytes, chain)


def tier(capacity_bytes: int, below: KvTier | None = None, *, latency_ns: int = 0) -> KvTier:
    spec = Tier(capacity_bytes=capacity_bytes, write_bytes_per_s=10**9, read_bytes_per_s=10**9, latency_ns=latency_ns)
    return KvTier(spec, below)


def hits(where: KvTier, now_ns: int, chains: range = range(10)) -> list[int]:
    return [chain for chain in chains if where.can_hit(name(chain), now_ns)]


def test_writes_queue_and_can_be_hit_from_their_end_on() -> None:
    """Two of 10 bytes from 5 on, one of nothing, which takes 1 ns, and one that comes later."""
    host = tier(100)
    for chain, size_bytes, now_ns in ((1, 10, 5), (2, 10, 5), (3, 0, 5), (4, 10, 50)):
        host.put(name(chain, size_bytes), now_ns)
    ends = [(name(1), 15), (name(2), 25), (name(3, 0), 26), (name(4), 60)]
    assert [(host.can_hit(n, end - 1), host.can_hit(n, end)) for n, end in ends] == [(False, True)] * 4


def test_the_least_recently_used_goes_to_the_tier_below() -> None:
    """What comes again counts as used, as does what is read; the deepest of what is read together was used first."""
    store = tier(100)
    host = tier(30, store)
    for chain in (1, 2, 3):
        host.put(name(chain), 0)
    host.put(name(1), 40)
    host.put(name(4), 50)
    assert (hits(host, 99), hits(store, 99)) == ([1, 3, 4], [2])
    host.read([name(4), name(3)], 16, 99)
    for chain in (5, 6, 7):
        host.put(name(chain), 100 * chain)
    assert (hits(host, 999), hits(store, 999)) == ([5, 6, 7], [1, 2, 3, 4])
    assert [store.stats(None).written_blocks, host.stats(0).evicted_blocks] == [4, 4]


def test_what_is_written_or_pinned_stays_and_what_finds_no_room_is_dropped() -> None:
    """Nothing goes if that would not be enough, and what is dropped is not passed on."""
    store = tier(100)
    host = tier(30, store)
    for chain in (1, 2, 3):
        host.put(name(chain), 0)  # written until 10, 20 and 30
    host.pin([name(1)], 20)
    host.put(name(4, 11), 29)  # 2 alone may go
    assert (hits(host, 30), host.stats(0).dropped_blocks, store.used_bytes) == ([1, 2, 3], 1, 0)
    host.put(name(4, 11), 30)
    assert (hits(host, 29), host.can_hit(name(4, 11), 41), hits(store, 50)) == ([1], True, [2, 3])


def test_pins_are_counted() -> None:
    """Two loads read an item: it stays until both have landed, and keeps its place in the order of use."""
    host = tier(20)
    host.put(name(1), 0)
    host.put(name(2), 0)
    for _ in range(2):
        host.pin([name(1)], 20)
    host.put(name(3), 20)
    assert (hits(host, 99), host.pins) == ([1, 3], {name(1): 2})
    host.unpin([name(1)])
    host.put(name(4), 99)
    assert hits(host, 199) == [1, 4]
    host.unpin([name(1)])
    host.put(name(5), 199)
    assert (hits(host, 299), host.pins) == ([4, 5], {})


def test_reads_queue_and_land_a_latency_after_their_end() -> None:
    """The latency holds nobody up."""
    host = tier(100, latency_ns=7)
    for chain in (1, 2, 3):
        host.put(name(chain), 0)
    assert host.landing_ns(20, 50) == 77
    assert host.read([name(2), name(1)], 16, 50) == 77
    assert (host.landing_ns(10, 60), host.read([name(3)], 16, 60)) == (87, 87)
    stats = host.stats(0)
    assert (stats.read_bytes, stats.hit_blocks, stats.hit_tokens) == (30, 3, 48)


def test_kinds_and_sizes_are_names_apart() -> None:
    """Only blocks count as blocks, all bytes as bytes."""
    host = tier(25)
    for n in (name(1), name(1, 5, "snapshot"), name(1, 6)):
        host.put(n, 0)
    stats = host.stats(0)
    assert (stats.written_blocks, stats.written_bytes, stats.peak_bytes, host.used_bytes) == (2, 21, 21, 21)
    assert not host.can_hit(name(1, 5, "window"), 99)


def test_chains_are_numbered_by_all_their_keys() -> None:
    """The same key after another beginning is another chain."""
    chains = ChainIds()
    first, other = chains.give(0, 7), chains.give(0, 8)
    assert chains.give(first, 7) == chains.give(chains.give(0, 7), 7) != chains.give(other, 7)
    assert (chains.find(first, 7), chains.find(first, 9)) == (chains.give(first, 7), None)


class Plain:
    """The same from the rule, with lists."""

    def __init__(self, capacity_bytes: int, below: "Plain | None") -> None:
        self.capacity_bytes, self.below = capacity_bytes, below
        self.items: list[ItemName] = []  # by last use
        self.ends: dict[ItemName, int] = {}
        self.pins: Counter[ItemName] = Counter()
        self.free_ns = 0

    def put(self, n: ItemName, now_ns: int) -> None:
        if n in self.items:
            self.items.append(self.items.pop(self.items.index(n)))
            return
        able = [i for i in self.items if not self.pins[i] and self.ends[i] <= now_ns]
        room = self.capacity_bytes - sum(i.size_bytes for i in self.items) - n.size_bytes
        if room + sum(i.size_bytes for i in able) < 0:
            return
        for i in able:
            if room >= 0:
                break
            room += i.size_bytes
            self.items.remove(i)
            if self.below is not None:
                self.below.put(i, now_ns)
        self.free_ns = self.ends[n] = max(self.free_ns, now_ns) + max(1, n.size_bytes)
        self.items.append(n)


@pytest.mark.parametrize("number", range(20))
def test_a_tier_is_as_a_plain_one(number: int) -> None:
    """Anything comes, is read and pinned, at any time; stale entries of the heap are swept out all the time."""
    rnd = random.Random(number)
    sizes = [rnd.choice([0, 1, 5, 20]) for _ in range(30)]
    with mock.patch.object(module, "SWEEP_ENTRIES", rnd.choice([3, 4096])):
        store = tier(rnd.randint(0, 100))
        pair = tier(rnd.randint(20, 100), store), Plain(0, Plain(store.capacity_bytes, None))
        pair[1].capacity_bytes = pair[0].capacity_bytes
        now_ns, pinned = 0, list[ItemName]()
        for _ in range(600):
            now_ns += rnd.choice([0, 1, 30])
            n = name(chain := rnd.randrange(30), sizes[chain])
            assert [pair[0].can_hit(n, now_ns), store.can_hit(n, now_ns)] == [
                n in plain.items and plain.ends[n] <= now_ns for plain in (pair[1], pair[1].below) if plain
            ]
            if rnd.randint(0, 2):
                for each in pair:
                    each.put(n, now_ns)
            elif pair[0].can_hit(n, now_ns) and len(pinned) < 4:
                pair[0].pin([n], now_ns)
                pair[0].read([n], 1, now_ns)
                pair[1].pins[n] += 1
                pair[1].items.append(pair[1].items.pop(pair[1].items.index(n)))
                pinned.append(n)
            elif pinned:
                n = pinned.pop(rnd.randrange(len(pinned)))
                pair[0].unpin([n])
                pair[1].pins[n] -= 1
            assert pair[0].sums() == (pair[0].used_bytes, pair[0].idle_bytes)
            assert pair[0].used_bytes == sum(i.size_bytes for i in pair[1].items) <= pair[0].capacity_bytes
        assert pair[0].stats(0).evicted_blocks > 20
