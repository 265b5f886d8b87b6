"""Rules 6 and 8: the KV ledger of one stage: tokens held by sequence, and what the prefix cache holds."""

from dataclasses import dataclass, field

from stageline.plan.schema import StagePlan


@dataclass(slots=True)
class Ledger:
    """Bytes = blocks * kv_block_bytes + (sequences + snapshots) * state_bytes, summed anew for every question.

    Layers with a sliding window add, for each sequence, as many of its blocks as the window has, if it has so many.
    """

    plan: StagePlan
    block_tokens: int
    held: dict[int, int] = field(default_factory=dict)  # request index -> tokens
    shared: dict[int, int] = field(default_factory=dict)  # request index -> how many of its blocks the cache holds
    cached_blocks: int = 0
    snapshots: int = 0

    def bytes_of(self, index: int, tokens: int) -> int:
        """What a sequence with this many tokens takes beside the blocks that it shares."""
        own = blocks_of(tokens, self.block_tokens) - self.shared.get(index, 0)
        size = own * self.plan.kv_block_bytes + self.plan.state_bytes
        for window in self.plan.kv_windows or ():
            size += window.block_bytes * min(own, window.most_blocks)
        return size

    def cache_bytes(self, blocks: int, snapshots: int) -> int:
        """What the prefix cache takes with so much in it: a block counts once, however many use it."""
        return blocks * self.plan.kv_block_bytes + snapshots * self.plan.state_bytes

    def used_bytes(self) -> int:
        """What all sequences and the prefix cache take together."""
        sequences = sum(self.bytes_of(index, tokens) for index, tokens in self.held.items())
        return sequences + self.cache_bytes(self.cached_blocks, self.snapshots)

    def has_room(self, index: int, tokens: int, without: tuple[int, int] = (0, 0)) -> bool:
        """Whether sequence `index` may hold `tokens` in place of what it holds now.

        `without`: if that many cached blocks and snapshots were gone.
        """
        others = sum(self.bytes_of(i, n) for i, n in self.held.items() if i != index)
        cache = self.cache_bytes(self.cached_blocks - without[0], self.snapshots - without[1])
        return others + cache + self.bytes_of(index, tokens) <= self.plan.kv_budget_bytes


def blocks_of(tokens: int, block_tokens: int) -> int:
    """Blocks that hold this many tokens; the last one may be partly filled."""
    return -(-tokens // block_tokens)
