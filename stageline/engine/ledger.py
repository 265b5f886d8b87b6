"""A stage's KV ledger in bytes (rule 6). The stage is the authority; the router mirrors it."""

from collections.abc import Iterable

from stageline.engine.microbatch import Grant
from stageline.errors import KvOverdraw, LawBroken
from stageline.plan.schema import StagePlan


class Ledger:
    """KV blocks of full-attention layers and constant states of linear layers, by owner (see Microbatch).

    A layer with a sliding window keeps at most the window's blocks of each owner's context.
    """

    __slots__ = ("_block_bytes", "_held", "_stage", "_state_bytes", "_windows", "budget_bytes", "peak_bytes",
                 "used_bytes")  # fmt: skip

    def __init__(self, stage: StagePlan) -> None:
        self._stage = stage
        self._windows = stage.windows
        self._block_bytes = stage.kv_block_bytes
        self._state_bytes = stage.state_bytes
        self.budget_bytes = stage.kv_budget_bytes
        self.used_bytes = 0
        self.peak_bytes = 0
        self._held: dict[int, tuple[int, int, int]] = {}  # owner -> blocks, states, blocks of its context

    def apply(self, releases: Iterable[int], grants: Iterable[Grant]) -> None:
        """Apply releases, then grants, then sample the peak. The ledger is unusable after a KvOverdraw."""
        for owner in releases:
            held = self._held.pop(owner, None)
            if held is None:
                raise KvOverdraw(f"KV of owner {owner} is released, but this stage holds none of it")
            self.used_bytes -= self._bytes(held)
        for owner, blocks, states, context in grants:
            had = self._held.get(owner, (0, 0, 0))
            now = had[0] + blocks, had[1] + states, had[2] + context
            self.used_bytes += blocks * self._block_bytes + states * self._state_bytes
            for w in self._windows:
                self.used_bytes += (min(now[2], w.most_blocks) - min(had[2], w.most_blocks)) * w.block_bytes
            if self.used_bytes > self.budget_bytes or min(now) < 0:
                raise KvOverdraw(
                    f"owner {owner} asks for {blocks} blocks and {states} states beside its {had[0]} and {had[1]}: "
                    f"it would hold {self.used_bytes} of {self.budget_bytes} B, while the router's ledger has room"
                )
            self._held[owner] = now
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def held_bytes(self, owners: Iterable[int]) -> int:
        """What these owners hold; nothing for one that is not here."""
        return sum(self._bytes(self._held[owner]) for owner in owners if owner in self._held)

    def close(self, releases: Iterable[int]) -> None:
        """Apply the last releases of a run. Raises LawBroken when anything is still held (L2)."""
        self.apply(releases, ())
        if self._held or self.used_bytes:
            raise LawBroken(f"L2: {self.used_bytes} B are still held by {len(self._held)} owners at the end")

    def check(self) -> None:
        """Recompute the sum (L2). Raises LawBroken when it differs."""
        total = sum(map(self._bytes, self._held.values()))
        if total != self.used_bytes or not 0 <= total <= self.budget_bytes:
            raise LawBroken(f"L2: ledger says {self.used_bytes} B of {self.budget_bytes}, its entries {total} B")

    def _bytes(self, held: tuple[int, int, int]) -> int:
        blocks, states, context = held
        return blocks * self._block_bytes + states * self._state_bytes + self._stage.window_bytes(context)
