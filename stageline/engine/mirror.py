"""The router's mirror of all ledgers of one replica (rule 6).

All stages of a pipeline hold the same sequences, so their ledgers differ only in how many bytes a block and a state
take there. Two counters, blocks and states, stand for all of them. A stage whose limit another stage's limit implies
need not be checked.
"""

from collections.abc import Sequence as Seq

from stageline.plan.schema import Plan, StagePlan


class KvMirror:
    """Blocks and states held by a replica's sequences, as every stage will have them once it has caught up.

    Sliding-window layers keep at most `caps[i]` of a context's blocks; `kept[i]` is what they keep of all sequences,
    copies in the prefix cache included. What a change means to windows depends on its owner's context: see `kept_of`.
    """

    def __init__(self, plan: Plan) -> None:
        self.block_tokens = plan.block_tokens
        self.blocks = 0
        self.states = 0
        self.caps = tuple(sorted({w.most_blocks for s in plan.stages for w in s.windows}))
        self.kept = [0] * len(self.caps)
        self._stages = plan.stages
        self._limits = [(s.kv_block_bytes, s.state_bytes, s.kv_budget_bytes) for s in _binding(plan.stages)]
        self._window_bytes = [_window_bytes(s, self.caps) for s in plan.stages]
        first = {_sizes(s): i for i, s in reversed(list(enumerate(plan.stages)))}
        self._distinct = sorted(first.values())  # of stages with equal sizes and budgets, the first
        self._peak_of = [first[_sizes(s)] for s in plan.stages]
        self._peaks = dict.fromkeys(self._distinct, 0)
        self.refusals = [0] * len(plan.stages)

    def blocks_for(self, tokens: int) -> int:
        """KV blocks of a sequence of `tokens`."""
        return -(-tokens // self.block_tokens)

    def kept_of(self, blocks: int, before: int = 0) -> list[int]:
        """What windows keep when a context of `before` blocks grows by `blocks`, in the order of `caps`."""
        return [min(before + blocks, cap) - min(before, cap) for cap in self.caps]

    def fits(self, blocks: int, states: int, kept: Seq[int] = ()) -> bool:
        """Whether every stage has room for that much more; `kept`, here and below, by windows."""
        if self.caps:
            stages = self._stages
            return all(self._used(i, blocks, states, kept) <= stages[i].kv_budget_bytes for i in self._distinct)
        blocks += self.blocks
        states += self.states
        return all(blocks * b + states * s <= budget for b, s, budget in self._limits)

    def count_refusal(self, blocks: int, states: int, kept: Seq[int] = ()) -> None:
        """Count that there was no room, at the stage that is fullest."""
        over = [self._fill(i, blocks, states, kept) for i in range(len(self._stages))]
        self.refusals[over.index(max(over))] += 1

    def fits_empty(self, blocks: int) -> bool:
        """Whether a sequence of that many blocks fits empty ledgers."""
        return all(s.kv_bytes(blocks, 1) <= s.kv_budget_bytes for s in self._stages)

    def allocate(self, blocks: int, states: int, kept: Seq[int] = ()) -> None:
        """Hold that much more. The caller has made sure that it fits."""
        self.blocks += blocks
        self.states += states
        if kept:
            self.kept = [a + b for a, b in zip(self.kept, kept, strict=True)]

    def free(self, blocks: int, states: int, kept: Seq[int] = ()) -> None:
        """Hold that much less."""
        self.blocks -= blocks
        self.states -= states
        if kept:
            self.kept = [a - b for a, b in zip(self.kept, kept, strict=True)]

    def sample_peaks(self) -> None:
        """Update the high-water marks, as each stage does after a microbatch's releases and grants."""
        for i, peak in self._peaks.items():
            used = self._used(i, 0, 0, ())
            if used > peak:
                self._peaks[i] = used

    def used_bytes(self, stage: int) -> int:
        """What the ledger of a stage will show."""
        return self._used(stage, 0, 0, ())

    def peak_bytes(self, stage: int) -> int:
        """The high-water mark of a stage's ledger."""
        return self._peaks[self._peak_of[stage]]

    def fill(self, extra_blocks: int, extra_states: int, extra_kept: Seq[int] = ()) -> int:
        """How full the fullest stage would be with that much more, in units of 2**-40 of its budget."""
        every = (i for i, s in enumerate(self._stages) if s.kv_budget_bytes)
        return max((self._fill(i, extra_blocks, extra_states, extra_kept) for i in every), default=0)

    def _used(self, stage: int, blocks: int, states: int, kept: Seq[int]) -> int:
        """A stage's ledger with that much more."""
        s = self._stages[stage]
        size = (self.blocks + blocks) * s.kv_block_bytes + (self.states + states) * s.state_bytes
        if self.caps:
            size += sum(a * b for a, b in zip(self.kept, self._window_bytes[stage], strict=True))
            size += sum(a * b for a, b in zip(kept, self._window_bytes[stage], strict=False))
        return size

    def _fill(self, stage: int, blocks: int, states: int, kept: Seq[int]) -> int:
        return (self._used(stage, blocks, states, kept) << 40) // (self._stages[stage].kv_budget_bytes or 1)


def _window_bytes(s: StagePlan, caps: Seq[int]) -> tuple[int, ...]:
    return tuple(sum(w.block_bytes for w in s.windows if w.most_blocks == cap) for cap in caps)


def _sizes(s: StagePlan) -> tuple[object, ...]:
    return s.kv_block_bytes, s.state_bytes, s.windows, s.kv_budget_bytes


def _binding(stages: Seq[StagePlan]) -> list[StagePlan]:
    """The stages whose limit no other stage's limit implies."""

    def implied(a: StagePlan, b: StagePlan) -> bool:  # b's limit implies a's
        return (
            a.kv_block_bytes * b.kv_budget_bytes <= b.kv_block_bytes * a.kv_budget_bytes
            and a.state_bytes * b.kv_budget_bytes <= b.state_bytes * a.kv_budget_bytes
        )

    kept: list[StagePlan] = []
    for s in stages:
        if not s.kv_block_bytes and not s.state_bytes:
            continue
        if any(implied(s, k) for k in kept):
            continue
        kept = [k for k in kept if not implied(k, s)] + [s]
    return kept
