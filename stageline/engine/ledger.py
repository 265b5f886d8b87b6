"""A stage's KV ledger in bytes (rule 6). The stage is the authority; the router mirrors it."""

from collections.abc import Iterable

from stageline.errors import KvOverdraw
from stageline.plan.schema import Stage


class Ledger:
    """Blocks of the full-attention layers and constant states of the linear ones, by request."""

    __slots__ = ("_block_bytes", "_blocks", "_state_bytes", "budget_bytes", "peak_bytes", "used_bytes")

    def __init__(self, stage: Stage) -> None:
        self._block_bytes = stage.kv_block_bytes
        self._state_bytes = stage.state_bytes
        self.budget_bytes = stage.kv_budget_bytes
        self.used_bytes = 0
        self.peak_bytes = 0
        self._blocks: dict[int, int] = {}

    @property
    def requests(self) -> int:
        """How many requests hold KV here."""
        return len(self._blocks)

    def apply(self, releases: Iterable[int], grants: Iterable[tuple[int, int]]) -> None:
        """Releases first, then grants, then the peak is sampled. Raises KvOverdraw and changes nothing further."""
        for request in releases:
            blocks = self._blocks.pop(request, None)
            if blocks is None:
                raise KvOverdraw(f"KV of request {request} is released, but this stage holds none for it")
            self.used_bytes -= blocks * self._block_bytes + self._state_bytes
        for request, blocks in grants:
            held = self._blocks.get(request)
            need = blocks * self._block_bytes + (self._state_bytes if held is None else 0)
            if self.used_bytes + need > self.budget_bytes:
                raise KvOverdraw(
                    f"request {request} asks for {need} B of KV; this stage's ledger: {self.used_bytes} of "
                    f"{self.budget_bytes} B used by {len(self._blocks)} requests; the router's has room for it"
                )
            self._blocks[request] = (held or 0) + blocks
            self.used_bytes += need
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def check(self) -> None:
        """L2, the slow way: recompute the sum. Raises AssertionError."""
        total = sum(b * self._block_bytes + self._state_bytes for b in self._blocks.values())
        assert total == self.used_bytes, f"L2: ledger says {self.used_bytes} B, its entries {total} B"
        assert 0 <= self.used_bytes <= self.budget_bytes, f"L2: {self.used_bytes} of {self.budget_bytes} B"
