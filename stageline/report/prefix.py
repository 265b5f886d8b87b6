"""Figures of a run's prefix caches."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict

from stageline.engine.types import PrefixStats
from stageline.units import NS_PER_S


class PrefixFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Hits are counted at first admissions. Without lookups the ratios are 0."""

    block_hit_ratio: float  # hit blocks / blocks of all prompts, last partial ones included
    token_hit_ratio: float  # hit tokens / tokens of all prompts
    evictions: int  # blocks evicted to make room
    saved_prefill_s: float  # service time, summed over the route, of the prefill chunks that were not computed


class PrefixSummary(PrefixFigures, frozen=True, kw_only=True):
    """`prefix_cache` of summary.json: all replicas together, then each."""

    replicas: list[PrefixFigures]


def prefix_summary(stats: Sequence[PrefixStats]) -> PrefixSummary | None:
    """None without a prefix cache."""
    if not stats:
        return None
    names = PrefixStats.__struct_fields__
    total = PrefixStats(**{name: sum(getattr(s, name) for s in stats) for name in names})
    return PrefixSummary(**asdict(_figures(total)), replicas=[_figures(s) for s in stats])


def prefix_text(figures: PrefixFigures) -> str:
    """The line of the text report."""
    saved = f"{figures.saved_prefill_s:,.1f} s of prefill saved"
    hits = f"{figures.block_hit_ratio:.1%} of blocks, {figures.token_hit_ratio:.1%} of tokens hit"
    return f"{hits}; {saved}; {figures.evictions:,} evictions"


def _figures(stats: PrefixStats) -> PrefixFigures:
    return PrefixFigures(
        block_hit_ratio=_ratio(stats.hit_blocks, stats.queried_blocks),
        token_hit_ratio=_ratio(stats.hit_tokens, stats.queried_tokens),
        evictions=stats.evictions,
        saved_prefill_s=stats.saved_prefill_ns / NS_PER_S,
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
