"""Speculative decoding (rule 9): how many tokens a decode step verifies, and how many are accepted."""

from stageline.engine.rng import STREAM_ACCEPTANCE, draw_at, stream_key
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling
from stageline.engine.types import SpeculationStats

PPM = 1_000_000


class Speculation:
    """Draft tokens of one replica. `draft_ns`: time to draft one token for every member of a microbatch."""

    __slots__ = ("_acceptance", "_accepted", "_drafted", "_seed", "_steps", "draft_ns", "draft_tokens")

    def __init__(self, scheduling: Scheduling, seed: int) -> None:
        self.draft_tokens = scheduling.speculate
        self.draft_ns = scheduling.draft_ns
        self._acceptance = scheduling.acceptance_ppm << 64
        self._seed = seed
        self._steps = self._drafted = self._accepted = 0

    def step_tokens(self, sequence: Sequence, tokens_left: int) -> int:
        """Tokens of a decode step (>= 1): the last token, and drafts as settings, output and budget allow."""
        may_come = sequence.request.max_output_tokens - sequence.generated
        return max(1, min(1 + self.draft_tokens, may_come, tokens_left))

    def verify(self, sequence: Sequence, drafts: int) -> tuple[int, int]:
        """A step with `drafts` >= 1 completed. Returns (drafts before the first rejection, those that are output)."""
        request, generated = sequence.request, sequence.generated
        key = stream_key(self._seed, STREAM_ACCEPTANCE, request.index, 0)
        right = 0
        while right < drafts and draw_at(key, generated + right) * PPM < self._acceptance:
            right += 1
        kept = min(right, request.output_tokens - generated - 1)
        self._steps += 1
        self._drafted += drafts
        self._accepted += kept
        return right, kept

    def stats(self) -> SpeculationStats:
        """Totals so far."""
        return SpeculationStats(steps=self._steps, drafted_tokens=self._drafted, accepted_tokens=self._accepted)


def expected_tokens(draft_tokens: int, acceptance_ppm: int) -> tuple[int, int]:
    """Mean tokens of a step, 1 + P + ... + P^K = (1 - P^(K+1)) / (1 - P), as an exact fraction.

    Leviathan, Kalman, Matias 2023, arXiv 2211.17192, equation 1.
    """
    total = sum(acceptance_ppm**i * PPM ** (draft_tokens - i) for i in range(draft_tokens + 1))
    return total, PPM**draft_tokens


def make_speculation(scheduling: Scheduling, seed: int) -> Speculation | None:
    """The speculation that the settings ask for; None without draft tokens."""
    return Speculation(scheduling, seed) if scheduling.speculate else None
