"""KV that is brought up from tiers (rule 12): a sequence that has hit some waits for it at its own replica."""

from collections.abc import Sequence as Seq
from functools import partial

from stageline.engine.below import Below, Hit, TierRules
from stageline.engine.due import LAND, DueEvents
from stageline.engine.replica import Replica
from stageline.engine.sequence import Sequence
from stageline.engine.served import ServedFleet
from stageline.engine.tier import ChainIds, KvTier
from stageline.engine.types import LoadRecord, TierStats


class Loads:
    """All tiers of a fleet, and the loads that are under way. Gives each replica with a prefix cache those below it."""

    def __init__(self, fleet: ServedFleet, replicas: Seq[Replica], due: DueEvents) -> None:
        self._due, self._replicas = due, replicas
        self.store = KvTier(fleet.store) if fleet.store is not None else None
        self.hosts: dict[int, KvTier] = {}  # by replica
        self.under_way: list[Hit] = []
        rules = TierRules(fleet.offload, fleet.load, fleet.balance_sees_host, ChainIds(), due)
        for replica, pool in zip(replicas, fleet.pool_of, strict=True):
            if replica.cache is None or (pool.host is None and self.store is None):
                continue
            host = None
            if pool.host is not None:
                host = self.hosts[replica.index] = KvTier(pool.host, self.store)
            replica.below = Below(replica.cache, host, self.store, rules)
            replica.loader = self

    def admitted(self, sequence: Sequence, hit: Hit, now_ns: int) -> None:
        """A replica holds KV for a hit: each tier is read once, and the load has landed when the last read has."""
        blocks = {}
        landed_ns = now_ns
        tokens = hit.block_tokens
        for tier, names in hit.reads:
            landed_ns = max(landed_ns, tier.read(names, tokens, now_ns))
            blocks[tier is self.store] = sum(name.kind == "block" for name in names)
        sequence.load = LoadRecord(
            host_tokens=blocks.get(False, 0) * tokens, store_tokens=blocks.get(True, 0) * tokens, start_ns=now_ns,
            landed_ns=landed_ns,
        )  # fmt: skip
        self.under_way.append(hit)
        self._due.touched.append(sequence.replica)  # it forms once more: whoever comes next may be a hand-over
        self._due.add(landed_ns, LAND, self._due.book(), partial(self._landed, sequence, hit))

    def _landed(self, sequence: Sequence, hit: Hit, now_ns: int) -> Sequence | None:
        hit.unpin()
        self.under_way.remove(hit)
        self._due.touched.append(sequence.replica)
        if sequence.cancelled:
            return sequence
        self._replicas[sequence.replica].land(sequence)
        return None

    @property
    def tiers(self) -> list[tuple[int | None, KvTier]]:
        """Host memory with its replica, then the store (None)."""
        hosts: list[tuple[int | None, KvTier]] = [*self.hosts.items()]
        return hosts if self.store is None else [*hosts, (None, self.store)]

    def stats(self) -> tuple[TierStats, ...]:
        """Totals so far, in that order."""
        return tuple(tier.stats(replica) for replica, tier in self.tiers)
