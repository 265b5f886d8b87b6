"""Rules 6 and 8: the KV ledger of one stage: tokens held by sequence, and what the prefix cache holds."""

from dataclasses import dataclass, field

from stageline.plan.schema import StagePlan

Cached = tuple[int, int, int]  # blocks, snapshots, and window KV of how many blocks
NOTHING: Cached = (0, 0, 0)


@dataclass(slots=True)
class Ledger:
    """Bytes = blocks * kv_block_bytes + (sequences + snapshots) * state_bytes, summed anew for every question.

    Layers with a sliding window add, for each sequence, as many of its blocks as the window has, if it has so many,
    whoever holds them; and as much of each block of the prefix cache beside which its window KV lies.
    """

    plan: StagePlan
    block_tokens: int
    identity_blocks: int = 1  # KV blocks of one block of the prefix cache
    held: dict[int, int] = field(default_factory=dict)  # request index -> tokens
    shared: dict[int, int] = field(default_factory=dict)  # request index -> how many of its blocks the cache holds
    cached: Cached = NOTHING

    def bytes_of(self, index: int, tokens: int) -> int:
        """What a sequence with this many tokens takes beside the blocks that it shares."""
        blocks = blocks_of(tokens, self.block_tokens)
        own = blocks - self.shared.get(index, 0)
        return own * self.plan.kv_block_bytes + self.plan.state_bytes + self.window_bytes(blocks)

    def window_bytes(self, blocks: int) -> int:
        """What windows keep of so many blocks in a row."""
        return sum(w.block_bytes * min(blocks, w.most_blocks) for w in self.plan.kv_windows or ())

    def cache_bytes(self, cached: Cached) -> int:
        """What the prefix cache takes with so much in it: a block counts once, however many use it."""
        blocks, snapshots, windows = cached
        size = blocks * self.identity_blocks * self.plan.kv_block_bytes + snapshots * self.plan.state_bytes
        return size + windows * self.window_bytes(self.identity_blocks)

    def used_bytes(self) -> int:
        """What all sequences and the prefix cache take together."""
        sequences = sum(self.bytes_of(index, tokens) for index, tokens in self.held.items())
        return sequences + self.cache_bytes(self.cached)

    def has_room(self, index: int, tokens: int, without: Cached = NOTHING) -> bool:
        """Whether sequence `index` may hold `tokens` in place of what it holds now.

        `without`: if that much of the prefix cache were gone.
        """
        others = sum(self.bytes_of(i, n) for i, n in self.held.items() if i != index)
        cache = self.cache_bytes(self.cached) - self.cache_bytes(without)
        return others + cache + self.bytes_of(index, tokens) <= self.plan.kv_budget_bytes


def blocks_of(tokens: int, block_tokens: int) -> int:
    """Blocks that hold this many tokens; the last one may be partly filled."""
    return -(-tokens // block_tokens)
