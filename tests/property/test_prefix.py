"""The prefix cache's index against a plain one written from the rule: what is resident, who uses it, who goes first."""

import random
from dataclasses import dataclass, field

import msgspec
import pytest

from stageline.engine.ledger import Ledger
from stageline.engine.microbatch import Grant
from stageline.engine.mirror import KvMirror
from stageline.engine.prefix import SNAPSHOT, WINDOW, HashBlock
from stageline.engine.prompt_cache import PromptCache
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.types import Request
from stageline.plan.schema import KvWindow, Plan
from stageline.testing import uniform_plan
from tests.property.checks import run_case
from tests.reference.prefix import Past, PlainCache


@dataclass
class Pair:
    """The product's cache and ledger beside the plain ones. Every method does one thing to both and compares."""

    plan: Plan
    kv_blocks: int
    snapshot_every: int
    grants: list[Grant] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)
    names: dict[int, tuple[str, Past]] = field(default_factory=dict)  # by owner
    hits: int = 0
    forgotten: int = 0  # window KV evicted while its block stayed

    def __post_init__(self) -> None:
        tokens = self.plan.block_tokens * self.kv_blocks
        self.mirror = KvMirror(self.plan)
        self.ledger = Ledger(self.plan.stages[0])
        self.cache = PromptCache(self.mirror, tokens, self.snapshot_every, Route(self.plan), 64)
        largest = max((window.most_blocks for window in self.plan.stages[0].windows), default=0)
        self.plain = PlainCache(tokens, self.snapshot_every, window_reach=-(-largest // self.kv_blocks))
        self.private: dict[int, int] = {}  # by request: KV blocks of its own
        self.contexts: dict[int, int] = {}  # by request: cached ones that it uses among them

    def room(self, blocks: int, states: int, before: int, after: int) -> bool:
        """Make room, if it can be made, for a context that grows from so many blocks to so many."""
        allowed = self.cache.make_room(blocks, states, self.mirror.kept_of(after - before, before))
        windows_bytes = self.plan.stages[0].window_bytes(after) - self.plan.stages[0].window_bytes(before)
        assert allowed == self.room_in_plain(blocks, states, windows_bytes)
        return allowed

    def room_in_plain(self, blocks: int, states: int, windows_bytes: int) -> bool:
        """The same in the plain one alone. For what it caches the product makes room by itself."""
        may_free, may_drop, may_forget = self.plain.could_free()
        copy = self.plan.stages[0].window_bytes(self.kv_blocks)
        least = blocks - may_free * self.kv_blocks, states - may_drop, windows_bytes - may_forget * copy
        if not self._fits(*least):
            return False
        while not self._fits(blocks, states, windows_bytes):
            going = self.plain.next_to_go()
            assert going is not None
            self.plain.give_up(*going)
        return True

    def _fits(self, blocks: int, states: int, windows_bytes: int) -> bool:
        stage = self.plan.stages[0]
        blocks += sum(self.private.values()) + len(self.plain.held) * self.kv_blocks
        states += len(self.private) + self.plain.snapshots
        windows_bytes += sum(stage.window_bytes(context) for context in self.contexts.values())
        windows_bytes += self.plain.windows * stage.window_bytes(self.kv_blocks)
        return blocks * stage.kv_block_bytes + states * stage.state_bytes + windows_bytes <= stage.kv_budget_bytes

    def admit(self, sequence: Sequence, chunk: int) -> bool:
        """Reuse what there is and compute the first chunk of the rest; False: no room."""
        request = sequence.request
        cached = self.cache.acquire(sequence)
        blocks = self.plain.longest(request.hash_ids, request.prompt_tokens)
        assert cached == blocks * self.plain.block_tokens
        self.plain.hold(request.hash_ids, blocks)
        chunk = min(chunk, request.prompt_tokens - cached)
        context = self.mirror.blocks_for(cached + chunk)
        if not self.room(context - blocks * self.kv_blocks, 1, 0, context):
            self.cache.release(sequence)
            self.plain.let_go(request.hash_ids, blocks)
            return False
        self.hits += blocks
        self.running.append(sequence)
        sequence.written_tokens = cached
        shared = blocks * self.kv_blocks
        self.private[request.index], self.contexts[request.index] = 0, shared
        self.mirror.allocate(0, 1, self.mirror.kept_of(shared))
        self.grants.append((request.index, 0, 1, shared))
        self._write(sequence, context - shared, chunk)
        return True

    def go_on(self, sequence: Sequence, chunk: int) -> None:
        """The next chunk, if there is room."""
        chunk = min(chunk, sequence.request.prompt_tokens - sequence.written_tokens)
        held = sequence.blocks + sequence.cached_blocks
        need = self.mirror.blocks_for(sequence.written_tokens + chunk) - held
        if chunk and self.room(need, 0, held, held + need):
            self._write(sequence, need, chunk)

    def _write(self, sequence: Sequence, need: int, chunk: int) -> None:
        request = sequence.request
        self.mirror.allocate(need, 0, self.mirror.kept_of(need, self.contexts[request.index]))
        sequence.blocks += need
        self.grants.append((request.index, need, 0, need))
        self.private[request.index] += need
        self.contexts[request.index] += need
        known = len(sequence.chain)
        sequence.written_tokens += chunk
        self.cache.cache_full_blocks(sequence, self.grants)
        full = min(len(request.hash_ids), sequence.written_tokens // self.plain.block_tokens)
        for n in range(known + 1, full + 1):
            past = request.hash_ids[:n]
            self.private[request.index] -= self.kv_blocks
            if self.plain.add(past) and self.plain.wants_snapshot(past) and self.room_in_plain(0, 1, 0):
                self.plain.keep_snapshot(past)
        for n in range(full, known, -1):
            past = request.hash_ids[:n]
            copy = self.plan.stages[0].window_bytes(self.kv_blocks)
            if self.plain.wants_window(past) and self.room_in_plain(0, 0, copy):
                self.plain.keep_window(past)
        self._learn_names()

    def leave(self, sequence: Sequence) -> None:
        """It ends, or is preempted."""
        request = sequence.request
        self.running.remove(sequence)
        self.mirror.free(sequence.blocks, 1, self.mirror.kept_of(self.contexts.pop(request.index)))
        self.releases.append(request.index)
        self.plain.let_go(request.hash_ids, len(sequence.chain))
        self.cache.release(sequence)
        del self.private[request.index]
        sequence.blocks = sequence.written_tokens = 0

    def dispatch(self) -> None:
        """The microbatch leaves: a stage's ledger takes it."""
        evicted = self.cache.take_evicted()
        assert [self.names[owner] for owner in evicted] == self.plain.given_up, "eviction order"
        self.ledger.apply((*self.releases, *evicted), self.grants)
        self.ledger.check()
        assert self.ledger.used_bytes == self.mirror.used_bytes(0)
        self.forgotten += sum(what == "window" and past in self.plain.held for what, past in self.plain.given_up)
        self.plain.given_up.clear()
        self.plain.fresh.clear()
        self.grants, self.releases = [], []

    def compare(self) -> None:
        """Block by block."""
        found = {past: (node.users, node.snapshot, node.window) for past, node in self._nodes().items()}
        assert found == {past: (block.users, block.snapshot, block.window) for past, block in self.plain.held.items()}
        kept = [self.plain.windows * min(self.kv_blocks, cap) for cap in self.mirror.caps]
        assert self.cache.resident() == (len(found) * self.kv_blocks, self.plain.snapshots, kept)

    def _learn_names(self) -> None:
        for past, node in self._nodes().items():
            self.names[node.owner] = "block", past
            self.names[node.owner - SNAPSHOT] = "snapshot", past
            self.names[node.owner - WINDOW] = "window", past

    def _nodes(self) -> dict[Past, HashBlock]:
        found: dict[Past, HashBlock] = {}
        todo = [((key,), node) for key, node in self.cache._root.children.items()]
        while todo:
            past, node = todo.pop()
            found[past] = node
            todo += [((*past, key), child) for key, child in node.children.items()]
        return found


def with_windows(rnd: random.Random, plan: Plan) -> Plan:
    """One window or two, and room for what they keep of a few sequences."""
    most = sorted(rnd.sample(range(1, 7), rnd.choice([1, 1, 2])))
    windows = tuple(KvWindow(most_blocks=n, block_bytes=rnd.randint(1, 3)) for n in most)
    room = rnd.randint(1, 3) * sum(w.most_blocks * w.block_bytes for w in windows)
    old = plan.stages[0]
    stage = msgspec.structs.replace(old, kv_windows=windows, kv_budget_bytes=old.kv_budget_bytes + room)
    return msgspec.structs.replace(plan, stages=(stage,))


def play(rnd: random.Random, *, windows: bool) -> Pair:
    """Some hundred microbatches of random prompts from a few families."""
    block_bytes, state_bytes = rnd.choice([(1, 0), (3, 0), (2, 5), (0, 4), (1, 1)])
    block_tokens, kv_blocks = rnd.choice([1, 2, 4]), rnd.choice([1, 1, 2])
    plan = uniform_plan(
        1, block_tokens=block_tokens, kv_budget_bytes=rnd.choice([20, 40, 90, 10**6]), kv_block_bytes=block_bytes,
        state_bytes=state_bytes,
    )  # fmt: skip
    if windows:
        plan = with_windows(rnd, plan)
    pair = Pair(plan, kv_blocks, rnd.choice([1, 2, 3]) if state_bytes else 0)
    families = [[rnd.randint(1, 3) for _ in range(12)] for _ in range(3)]
    waiting: list[Sequence] = []
    for index in range(rnd.randint(5, 120)):
        ids = rnd.choice(families)[: rnd.randint(0, 8)] + [100 + index * rnd.choice([0, 1])] * rnd.randint(0, 2)
        tokens = max(1, len(ids) * pair.plain.block_tokens - rnd.randint(0, pair.plain.block_tokens - 1))
        request = Request(
            index=index, arrival_ns=0, prompt_tokens=tokens, output_tokens=1, max_output_tokens=1, hash_ids=tuple(ids)
        )
        waiting.append(Sequence(request, 0))
        for sequence in list(pair.running):
            act = rnd.randint(0, 3)
            if act == 0:
                pair.leave(sequence)
            elif act == 1:
                pair.go_on(sequence, rnd.randint(1, 9))
            pair.compare()
        while waiting and rnd.randint(0, 3) and pair.admit(waiting[0], rnd.randint(1, 30)):
            waiting.pop(0)
            pair.compare()
        pair.dispatch()
        pair.compare()
    return pair


def play_to_the_end(rnd: random.Random, *, windows: bool = False) -> Pair:
    """The same, until everybody has left and nothing is resident."""
    pair = play(rnd, windows=windows)
    for sequence in list(pair.running):
        pair.leave(sequence)
    pair.cache.clear()
    pair.ledger.apply((*pair.releases, *pair.cache.take_evicted()), ())
    assert pair.ledger.used_bytes == 0
    return pair


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_the_index_agrees_with_the_plain_one(first: int) -> None:
    """Every other batch sweeps its heap all the time."""
    pairs = [run_case("index", "rare-sweeps" if first % 80 else "eager-sweeps", n) for n in range(first, first + 40)]
    assert sum(pair.hits for pair in pairs) > 200
    assert sum(pair.cache.evicted_blocks for pair in pairs) > 200


def test_the_index_agrees_with_the_plain_one_on_windows() -> None:
    """Also where hits are cut, since window KV is gone, and where blocks are computed again for it."""
    pairs = [run_case("index", kind, n) for kind in ("windows", "windows-eager-sweeps") for n in range(40)]
    assert sum(pair.hits for pair in pairs) > 200
    assert sum(pair.forgotten for pair in pairs) > 200
