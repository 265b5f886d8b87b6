"""The numbered laws (invariants), one function each; tests and `--paranoid` check them after every round of events.

L1 requests in = finished + failed + in system
L2 ledgers never negative, never over budget, zero at the end; tiers never over capacity
L3 time never runs backwards on a stage or link
L4 a microbatch visits the route in order, once each
L5 a sequence never has two decode steps in flight
L6 busy + idle causes = window (checked where a stage's record is made)
L7 in flight <= credits
"""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Seq

from stageline.engine.conductor import Conductor
from stageline.engine.heap_pipeline import HeapPipeline
from stageline.engine.router import Router
from stageline.engine.types import StageObserver
from stageline.errors import LawBroken


def require(condition: bool, law: str, detail: str) -> None:
    """Raise LawBroken with the law's number and what is wrong."""
    if not condition:
        raise LawBroken(f"{law}: {detail}")


def check_l1(router: Router) -> None:
    """Requests in = finished + failed + in system."""
    total = router.finished + router.failed + router.in_system()
    require(router.arrived == total, "L1", f"{router.arrived} arrived, {total} accounted for")


def check_l2(router: Router, pipelines: Seq[HeapPipeline]) -> None:
    """Ledgers add up. With nothing in flight the mirror equals every stage's ledger."""
    for replica, pipeline in zip(router.replicas, pipelines, strict=True):
        mirror = replica.mirror
        holders = [*replica.running.values(), *replica.pinned.values()]
        held = sum(s.blocks for s in holders)
        blocks, states, kept = (0, 0, [0] * len(mirror.caps)) if replica.cache is None else replica.cache.resident()
        require(mirror.blocks == held + blocks, "L2", f"mirror: {mirror.blocks} blocks; held {held}, cached {blocks}")
        contexts = [s.blocks + s.cached_blocks for s in holders]
        kept = [copies + sum(min(n, cap) for n in contexts) for cap, copies in zip(mirror.caps, kept, strict=True)]
        require(mirror.kept == kept, "L2", f"mirror: windows keep {mirror.kept} blocks, not {kept}")
        count = len(holders)
        require(mirror.states == count + states, "L2", f"mirror: {mirror.states} states, not {count} + {states}")
        unsent = replica.in_flight or replica.releases or replica.between.grants
        for stage in pipeline.stages:
            stage.ledger.check()
            if not unsent and not (replica.cache and replica.cache.evicted):
                mine, theirs = mirror.used_bytes(stage.index), stage.ledger.used_bytes
                require(mine == theirs, "L2", f"stage {stage.index}: router's ledger {mine} B, its own {theirs} B")


def check_prefix_cache(router: Router) -> None:
    """L2 with a prefix cache: a resident block counts once, and is not evicted while a running sequence uses it."""
    for replica in router.replicas:
        if replica.cache is None:
            continue
        holders = [*replica.running.values(), *replica.pinned.values()]
        users = Counter(block.owner for s in holders for block in s.chain)
        counted = {block.owner: block.users for block in replica.cache.hash_blocks()}
        require(users.keys() <= counted.keys(), "L2", f"replica {replica.index}: a block was evicted while in use")
        wrong = {owner for owner, n in counted.items() if n != users[owner]}
        require(not wrong, "L2", f"replica {replica.index}: blocks {sorted(wrong)} count other users than they have")


def check_tiers(router: Router) -> None:
    """L2 for tiers: bytes are the sum of items and never above the capacity; pins are those of the loads under way."""
    if router.loads is None:
        return
    for replica, tier in router.loads.tiers:
        where = "store" if replica is None else f"host memory of replica {replica}"
        size, idle = tier.sums()
        require(tier.used_bytes == size, "L2", f"{where}: {tier.used_bytes} B, its items {size}")
        require(size <= tier.capacity_bytes, "L2", f"{where}: {size} of {tier.capacity_bytes} B")
        require(tier.idle_bytes == idle, "L2", f"{where}: {tier.idle_bytes} B could be evicted, not {idle}")
        reads = [names for hit in router.loads.under_way for read, names in hit.reads if read is tier]
        pins = Counter(name for names in reads for name in names)
        require(tier.pins == pins, "L2", f"{where}: {len(tier.pins)} items are pinned, loads read {len(pins)}")


def check_context(router: Router) -> None:
    """L2: a sequence not in flight has written all tokens but the last, no rejected draft, and holds their blocks."""
    for replica in router.replicas:
        for s in replica.running.values():
            if s.in_flight:
                continue
            have = s.request.prompt_tokens + s.generated - (not s.todo_tokens)
            wrote = s.written_tokens + s.todo_tokens
            require(wrote == have, "L2", f"request {s.request.index}: {wrote} tokens written or to write, not {have}")
            held, least = s.blocks + s.cached_blocks, replica.mirror.blocks_for(s.written_tokens)
            require(held >= least, "L2", f"request {s.request.index}: {held} blocks held, {least} written")


def check_l5(router: Router) -> None:
    """A sequence in flight is not ready for another decode step."""
    for sequence in router.sequences.values():
        require(not (sequence.ready and sequence.in_flight), "L5", f"request {sequence.request.index}")


def check_l7(router: Router) -> None:
    """In flight + free credits = all credits, neither negative."""
    for r in router.replicas:
        flight = len(r.in_flight)
        require(
            r.credits >= 0 and flight + r.credits == r.all_credits, "L7",
            f"replica {r.index}: {flight} in flight, {r.credits} of {r.all_credits} credits free",
        )  # fmt: skip


def check_all(conductor: Conductor, pipelines: Seq[HeapPipeline]) -> None:
    """Every law that can be checked between two events."""
    check_l1(conductor.router)
    check_l2(conductor.router, pipelines)
    check_prefix_cache(conductor.router)
    check_tiers(conductor.router)
    check_context(conductor.router)
    check_l5(conductor.router)
    check_l7(conductor.router)


class OrderLaws:
    """L3 and L4 as a stage observer; passes everything on to `inner`."""

    def __init__(self, stage_of: Seq[tuple[int, ...]], inner: StageObserver | None = None) -> None:
        """`stage_of`: the stage of each visit, by replica."""
        self._stage_of = stage_of
        self._inner = inner
        self._last: dict[tuple[int, int], tuple[int, int]] = {}  # (replica, stage) -> (arrival, end)
        self._at: dict[tuple[int, int], tuple[int, int]] = {}  # (replica, microbatch) -> (visit, end)

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None:
        """Check one service."""
        where = f"replica {replica} stage {stage} visit {visit} microbatch {number}"
        arrival, end = self._last.get((replica, stage), (0, 0))
        require(arrival_ns >= arrival, "L3", f"{where} arrives at {arrival_ns}, after one of {arrival} was served")
        require(start_ns == max(end, arrival_ns) < end_ns, "L3", f"{where}: [{start_ns}, {end_ns}) after {end}")
        self._last[replica, stage] = arrival_ns, end_ns
        before, left = self._at.pop((replica, number), (-1, 0))
        require(
            visit == before + 1 and stage == self._stage_of[replica][visit], "L4", f"{where} comes after visit {before}"
        )
        require(arrival_ns >= left, "L3", f"{where} arrives at {arrival_ns}, leaving visit {before} at {left}")
        if visit + 1 < len(self._stage_of[replica]):
            self._at[replica, number] = visit, end_ns
        if self._inner is not None:
            self._inner.served(replica, stage, visit, number, arrival_ns, start_ns, end_ns)

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """Nothing to check: the parts of a gap sum to it by construction."""
        if self._inner is not None:
            self._inner.gap(replica, stage, start_ns, idle_ns)

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """Nothing to check: L2 looks at the ledgers themselves."""
        if self._inner is not None:
            self._inner.kv(replica, stage, now_ns, used_bytes)
