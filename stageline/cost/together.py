"""The totals that count where not all of a step's are alike (rule 3): ranks that step together, graphs, drafts."""

import msgspec

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


def captured_sizes(graphs: Graphs) -> list[int]:
    """By new tokens of one rank, up to the largest size: the captured size that holds them; 0: the step runs eager."""
    if graphs.exact:
        return [size if size in graphs.sizes else 0 for size in range(max(graphs.sizes, default=0) + 1)]
    held: list[int] = []
    for size in graphs.sizes:
        held += [size] * (size + 1 - len(held))
    return held


def drafting_passes(totals: BatchTotals) -> list[tuple[int, BatchTotals]]:
    """(number, totals) of a drafter's passes: the first one, if it has anything to do, and those that are alike."""
    sequences, prefills = totals.decode_sequences, totals.prefill_sequences
    drafts = -(-totals.decode_tokens // sequences) - 1 if sequences else 0
    if not drafts:
        sampled = min(prefills, max(0, totals.sampled - totals.decode_tokens))
        fields = {name: getattr(totals, name) for name in PREFILL}
        return [(1, BatchTotals(**fields, sampled=sampled))] if prefills else []
    sampled = sequences + min(prefills, max(0, totals.sampled - totals.decode_tokens))
    kv = totals.decode_kv_tokens
    later = BatchTotals(
        decode_sequences=sequences, decode_tokens=sequences, decode_kv_tokens=kv, decode_pairs=kv, sampled=sequences
    )
    return [(1, msgspec.structs.replace(totals, sampled=sampled)), (drafts - 1, later)]


PREFILL = ("prefill_sequences", "prefill_tokens", "prefill_kv_tokens", "prefill_pairs")
