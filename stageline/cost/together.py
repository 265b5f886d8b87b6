"""What the ranks of data-parallel attention cost together, and what CUDA graphs pad a step to (rule 3)."""

from bisect import bisect_left

from stageline.cost.entries import Graphs
from stageline.cost.totals import BatchTotals


def in_step(totals: BatchTotals, ranks: int) -> BatchTotals:
    """The totals of `ranks` ranks that all work as long as the fullest one, sequences being spread evenly.

    With s sequences of a phase the fullest rank has ceil(s / ranks): s' = ranks x ceil(s / ranks) sequences count, and
    ceil(x s' / s) of each total x of the phase. Sampled rows: ranks x ceil(rows / ranks).
    """
    decodes, prefills = totals.decode_sequences, totals.prefill_sequences
    most_decodes, most_prefills = -(-decodes // ranks) * ranks, -(-prefills // ranks) * ranks
    d, p = decodes or 1, prefills or 1
    return BatchTotals(
        decode_sequences=most_decodes,
        decode_tokens=-(-totals.decode_tokens * most_decodes // d),
        decode_kv_tokens=-(-totals.decode_kv_tokens * most_decodes // d),
        decode_pairs=-(-totals.decode_pairs * most_decodes // d),
        prefill_sequences=most_prefills,
        prefill_tokens=-(-totals.prefill_tokens * most_prefills // p),
        prefill_kv_tokens=-(-totals.prefill_kv_tokens * most_prefills // p),
        prefill_pairs=-(-totals.prefill_pairs * most_prefills // p),
        sampled=-(-totals.sampled // ranks) * ranks,
    )


def captured(graphs: Graphs, tokens: int, prefills: int) -> int | None:
    """The captured size in which a step of so many tokens of one rank runs; None: it runs eager."""
    if prefills and graphs.decode_only:
        return None
    i = bisect_left(graphs.sizes, tokens)
    if i == len(graphs.sizes) or (graphs.exact and graphs.sizes[i] != tokens):
        return None
    return graphs.sizes[i]
