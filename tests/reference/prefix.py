"""The prefix cache once more, from the rule's text: one dict from a block's whole past to what is known of it.

Slow and obvious: a block is named by the tuple of identities up to it, children are found by looking at all blocks, and
who goes next is the minimum over everything that may go.
"""

from dataclasses import dataclass, field

from stageline.engine.types import Request

Past = tuple[int, ...]  # identities of the blocks up to this one, itself included


@dataclass(slots=True)
class Block:
    """One resident block."""

    users: int
    last_use: int = 0
    snapshot: bool = False
    window: bool = False  # whether its window KV is kept
    window_use: int = 0


@dataclass(slots=True)
class PlainCache:
    """Blocks, snapshots and window KV that are held.

    `snapshot_every`: distance of snapshots in blocks; 0: the model has no state. `window_reach`: blocks at the end of
    a hit whose window KV it needs; 0: the model has no windows. What is in `fresh` belongs to the microbatch that is
    being formed.
    """

    block_tokens: int
    snapshot_every: int
    window_reach: int = 0
    held: dict[Past, Block] = field(default_factory=dict)
    order: list[Past] = field(default_factory=list)  # in the order of becoming resident
    fresh: list[tuple[str, Past]] = field(default_factory=list)
    uses: int = 0
    given_up: list[tuple[str, Past]] = field(default_factory=list)  # in order: what, which

    @property
    def snapshots(self) -> int:
        """How many states are kept."""
        return sum(block.snapshot for block in self.held.values())

    @property
    def windows(self) -> int:
        """How many blocks have their window KV beside them."""
        return sum(block.window for block in self.held.values())

    def identities(self, request: Request) -> Past:
        """Of the blocks of its prompt, then of those that its answer completes; nothing after a block without one."""
        prompt_blocks = request.prompt_tokens // self.block_tokens
        if len(request.hash_ids) < prompt_blocks:
            return request.hash_ids
        return request.hash_ids[:prompt_blocks] + request.output_hash_ids

    def longest(self, ids: Past, tokens: int) -> int:
        """Blocks that a prefill may reuse: full ones, resident one after the other, at least one token left over."""
        usable = [n for n in range(1, len(ids) + 1) if n * self.block_tokens < tokens]
        found = 0
        for n in usable:
            if ids[:n] not in self.held:
                break
            found = n
        return max((n for n in range(1, found + 1) if self.may_begin_after(ids[:n])), default=0)

    def may_begin_after(self, past: Past) -> bool:
        """Whether states and windows are kept as they are after these blocks, all of which are resident."""
        if self.snapshot_every and not self.held[past].snapshot:
            return False
        return all(self.held[block].window for block in self.last_ones(past))

    def last_ones(self, past: Past) -> list[Past]:
        """The blocks at the end of a chain that windows reach over."""
        chain = [past[:n] for n in range(1, len(past) + 1)]
        return chain[-self.window_reach :] if self.window_reach else []

    def hold(self, ids: Past, blocks: int) -> None:
        """A sequence uses the first `blocks` blocks of its prompt."""
        for n in range(1, blocks + 1):
            self.held[ids[:n]].users += 1
        for past in self.last_ones(ids[:blocks]):
            self.held[past].window_use = self.uses

    def let_go(self, ids: Past, blocks: int) -> None:
        """It no longer does."""
        self.uses += 1
        for n in range(1, blocks + 1):
            block = self.held[ids[:n]]
            block.users -= 1
            block.last_use = self.uses
        for past in self.last_ones(ids[:blocks]):
            self.held[past].window_use = self.uses

    def add(self, past: Past) -> bool:
        """A block has been computed, by a sequence that uses it from now on; False: it was there already."""
        if past in self.held:
            self.held[past].users += 1
            return False
        self.held[past] = Block(users=1)
        self.order.append(past)
        return True

    def wants_snapshot(self, past: Past) -> bool:
        """Whether a state is kept after this block, if there is room."""
        return bool(self.snapshot_every) and len(past) % self.snapshot_every == 0

    def keep_snapshot(self, past: Past) -> None:
        """It is."""
        self.held[past].snapshot = True
        self.held[past].last_use = self.uses
        self.fresh.append(("snapshot", past))

    def wants_window(self, past: Past) -> bool:
        """Whether window KV of this block, which has just been computed, is kept, if there is room."""
        return bool(self.window_reach) and not self.held[past].window

    def keep_window(self, past: Past) -> None:
        """It is."""
        self.held[past].window = True
        self.held[past].window_use = self.uses
        self.fresh.append(("window", past))

    def next_to_go(self) -> tuple[str, Past] | None:
        """Used least recently; then blocks, deepest first, youngest first, a snapshot before its block; then window KV.

        Of that the least deep goes first. None: all is in use.
        """
        candidates = []
        for age, past in enumerate(self.order):
            block = self.held[past]
            key = (block.last_use, 0, -len(past), -age)
            if block.snapshot and ("snapshot", past) not in self.fresh:
                candidates.append((*key, 0, "snapshot", past))
            if not block.users and not any(other[:-1] == past for other in self.held):
                candidates.append((*key, 1, "block", past))
            if block.window and ("window", past) not in self.fresh:
                candidates.append((block.window_use, 1, len(past), -age, 0, "window", past))
        return min(candidates)[-2:] if candidates else None

    def give_up(self, what: str, past: Past) -> None:
        """Without a block its snapshot and its window KV are of no use, and go with it."""
        if what == "block" and self.held[past].window:
            self.given_up.append(("window", past))
        self.given_up.append((what, past))
        if what == "window":
            self.held[past].window = False
        elif what == "snapshot":
            self.held[past].snapshot = False
        else:
            del self.held[past]
            self.order.remove(past)

    def could_free(self) -> tuple[int, int, int]:
        """Blocks, snapshots and window KV (of how many blocks) that would go if everything that may go went."""
        blocks = sum(not block.users for block in self.held.values())
        snapshots = sum(block.snapshot and ("snapshot", past) not in self.fresh for past, block in self.held.items())
        windows = sum(block.window and ("window", past) not in self.fresh for past, block in self.held.items())
        return blocks, snapshots, windows
