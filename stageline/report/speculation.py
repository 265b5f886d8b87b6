"""Figures of a run's draft tokens."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict

from stageline.engine.types import SpeculationStats


class SpeculationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`speculation` of summary.json, all replicas together. Without drafts the ratios are 0.

    Only decode steps that carried drafts count. A draft behind a rejected one is rejected too, so that
    `accepted_ratio` lies below the probability that a draft is right.
    """

    steps: int
    drafted_tokens: int
    accepted_tokens: int  # drafts that became output
    accepted_ratio: float  # accepted / drafted
    tokens_per_step: float  # 1 + accepted / steps


def speculation_summary(stats: Sequence[SpeculationStats]) -> SpeculationSummary | None:
    """None when nothing is drafted."""
    if not stats:
        return None
    total = sum(stats, SpeculationStats())
    return SpeculationSummary(
        **asdict(total),
        accepted_ratio=total.accepted_tokens / total.drafted_tokens if total.drafted_tokens else 0.0,
        tokens_per_step=1 + total.accepted_tokens / total.steps if total.steps else 0.0,
    )


def speculation_text(s: SpeculationSummary) -> str:
    """The line of the text report."""
    return f"{s.tokens_per_step:.2f} tokens per decode step; {s.accepted_ratio:.1%} of {s.drafted_tokens:,} drafts kept"
