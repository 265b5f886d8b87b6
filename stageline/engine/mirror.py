"""The router's mirror of all ledgers of one replica (rule 6).

All stages of a pipeline hold the same sequences, so their ledgers differ only in what a block and a state weigh there:
two counters, blocks and states, stand for all of them, and only the stages that no other one dominates need asking.
"""

from collections.abc import Sequence as Seq

from stageline.plan.schema import Plan, Stage


class KvMirror:
    """Blocks and states held by a replica's sequences, as every stage will have them once it has caught up."""

    def __init__(self, plan: Plan) -> None:
        self.block_tokens = plan.block_tokens
        self.blocks = 0
        self.states = 0
        self._stages = plan.stages
        self._limits = [(s.kv_block_bytes, s.state_bytes, s.kv_budget_bytes) for s in _binding(plan.stages)]
        self._peaks = {(s.kv_block_bytes, s.state_bytes): 0 for s in plan.stages}
        self.refusals = [0] * len(plan.stages)

    def blocks_for(self, tokens: int) -> int:
        """KV blocks of a sequence of `tokens`."""
        return -(-tokens // self.block_tokens)

    def fits(self, blocks: int, states: int) -> bool:
        """Whether every stage has room for that much more."""
        blocks += self.blocks
        states += self.states
        return all(blocks * b + states * s <= budget for b, s, budget in self._limits)

    def refuse(self, blocks: int, states: int) -> None:
        """Book that there was no room on the stage that binds."""
        self.refusals[self._tightest(self.blocks + blocks, self.states + states)] += 1

    def fits_empty(self, blocks: int) -> bool:
        """Whether a sequence of that many blocks fits empty ledgers."""
        return all(blocks * b + s <= budget for b, s, budget in self._limits)

    def take(self, blocks: int, states: int) -> None:
        """Hold more (negative: less)."""
        self.blocks += blocks
        self.states += states

    def sample_peaks(self) -> None:
        """Note the high-water marks, as each stage does after a microbatch's releases and grants."""
        for key, peak in self._peaks.items():
            used = self.blocks * key[0] + self.states * key[1]
            if used > peak:
                self._peaks[key] = used

    def used_bytes(self, stage: int) -> int:
        """What the ledger of a stage will show."""
        s = self._stages[stage]
        return self.blocks * s.kv_block_bytes + self.states * s.state_bytes

    def peak_bytes(self, stage: int) -> int:
        """The high-water mark of a stage's ledger."""
        s = self._stages[stage]
        return self._peaks[s.kv_block_bytes, s.state_bytes]

    def share(self, extra_blocks: int, extra_states: int) -> int:
        """How full the fullest stage would be with that much more, in units of 2**-40 of its budget."""
        blocks, states = self.blocks + extra_blocks, self.states + extra_states
        return max((_share(s, blocks, states) for s in self._stages), default=0)

    def _tightest(self, blocks: int, states: int) -> int:
        return max(range(len(self._stages)), key=lambda i: (_over(self._stages[i], blocks, states), -i))


def _share(s: Stage, blocks: int, states: int) -> int:
    if not s.kv_budget_bytes:
        return 0
    return ((blocks * s.kv_block_bytes + states * s.state_bytes) << 40) // s.kv_budget_bytes


def _over(s: Stage, blocks: int, states: int) -> int:
    used = blocks * s.kv_block_bytes + states * s.state_bytes
    return (used << 40) // (s.kv_budget_bytes or 1)


def _binding(stages: Seq[Stage]) -> list[Stage]:
    """The stages whose limit no other stage's limit implies."""

    def implied(a: Stage, b: Stage) -> bool:  # b's limit implies a's
        return (
            a.kv_block_bytes * b.kv_budget_bytes <= b.kv_block_bytes * a.kv_budget_bytes
            and a.state_bytes * b.kv_budget_bytes <= b.state_bytes * a.kv_budget_bytes
        )

    kept: list[Stage] = []
    for s in stages:
        if not s.kv_block_bytes and not s.state_bytes:
            continue
        if any(implied(s, k) for k in kept):
            continue
        kept = [k for k in kept if not implied(k, s)] + [s]
    return kept
