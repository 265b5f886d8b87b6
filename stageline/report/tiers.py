"""Figures of the tiers below prefix caches: `tiers` of summary.json."""

from collections.abc import Iterable

import msgspec

from stageline.engine.types import TierStats


class TierSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Host memory of all replicas together, or the store. Bytes are of all items, blocks are the prefix cache's."""

    tier: str  # "host" or "store"
    capacity_bytes: int
    peak_bytes: int  # of host memory: the sum of each replica's own
    hit_blocks: int
    hit_tokens: int
    read_bytes: int
    written_bytes: int
    evicted_blocks: int
    dropped_blocks: int  # that found no room


def tier_summaries(tiers: Iterable[TierStats]) -> tuple[TierSummary, ...]:
    """Host memory first; empty without tiers."""
    found = list(tiers)
    parts = (("host", [t for t in found if t.replica is not None]), ("store", [t for t in found if t.replica is None]))
    return tuple(_sum(name, part) for name, part in parts if part)


def _sum(name: str, tiers: list[TierStats]) -> TierSummary:
    figures = TierSummary.__struct_fields__[1:]
    return TierSummary(tier=name, **{figure: sum(getattr(t, figure) for t in tiers) for figure in figures})


def tier_text(tier: TierSummary) -> str:
    """One line of the text report."""
    return (
        f"{tier.hit_tokens:,} tokens hit ({tier.read_bytes / 1e9:.2f} GB), {tier.written_bytes / 1e9:.2f} GB written, "
        f"at most {tier.peak_bytes / 1e9:.2f} of {tier.capacity_bytes / 1e9:.2f} GB"
        + (f"; {tier.dropped_blocks:,} blocks found no room" if tier.dropped_blocks else "")
    )
