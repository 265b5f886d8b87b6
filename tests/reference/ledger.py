"""Rule 6: the KV ledger of one stage, a dict from sequence to tokens held."""

from dataclasses import dataclass, field

from stageline.plan.schema import Stage as StagePlan


@dataclass(slots=True)
class Ledger:
    """Bytes = blocks * kv_block_bytes + sequences * state_bytes, summed anew for every question."""

    plan: StagePlan
    block_tokens: int
    held: dict[int, int] = field(default_factory=dict)  # request index -> tokens

    def bytes_of(self, tokens: int) -> int:
        """What one sequence with this many tokens takes."""
        return blocks_of(tokens, self.block_tokens) * self.plan.kv_block_bytes + self.plan.state_bytes

    def used_bytes(self) -> int:
        """What all sequences take together."""
        return sum(self.bytes_of(tokens) for tokens in self.held.values())

    def has_room(self, index: int, tokens: int) -> bool:
        """Whether sequence `index` may hold `tokens` in place of what it holds now."""
        others = sum(self.bytes_of(n) for i, n in self.held.items() if i != index)
        return others + self.bytes_of(tokens) <= self.plan.kv_budget_bytes


def blocks_of(tokens: int, block_tokens: int) -> int:
    """Blocks that hold this many tokens; the last one may be partly filled."""
    return -(-tokens // block_tokens)
