"""The vectorised twin of `stageline.cost.together`, equal to the last bit."""

import numpy as np

from stageline.cost.arrays import Columns, IntArray
from stageline.cost.entries import Graphs


def in_step(columns: Columns, ranks: int) -> Columns:
    """See `together.in_step`."""
    if ranks == 1:
        return columns
    found = {"sampled": -(-columns["sampled"] // ranks) * ranks}
    for phase in ("decode", "prefill"):
        sequences = columns[f"{phase}_sequences"]
        most, own = -(-sequences // ranks) * ranks, np.maximum(sequences, 1)
        found[f"{phase}_sequences"] = most
        for name in ("tokens", "kv_tokens", "pairs"):
            found[f"{phase}_{name}"] = -(-columns[f"{phase}_{name}"] * most // own)
    return found


def captured_sizes(graphs: Graphs, tokens: IntArray, prefills: IntArray) -> IntArray:
    """See `together.captured`; 0 where a step runs eager."""
    sizes = np.array((*graphs.sizes, 0), dtype=np.int64)  # the last one stands for what is larger than all
    found = sizes[np.searchsorted(sizes[:-1], tokens)]
    if graphs.exact:
        found = np.where(found == tokens, found, 0)
    out: IntArray = np.where(prefills > 0, 0, found) if graphs.decode_only else found
    return out


def drafting_passes(columns: Columns) -> tuple[tuple[IntArray, Columns], tuple[IntArray, Columns]]:
    """(number, columns) of the first pass and of the later ones; see `together.drafting_passes`."""
    sequences, kv = columns["decode_sequences"], columns["decode_kv_tokens"]
    drafts = np.where(sequences > 0, -(-columns["decode_tokens"] // np.maximum(sequences, 1)) - 1, 0)
    decodes, some = [f"decode_{n}" for n in ("sequences", "tokens", "kv_tokens", "pairs")], drafts > 0
    own = np.minimum(columns["prefill_sequences"], np.maximum(0, columns["sampled"] - columns["decode_tokens"]))
    first = dict(columns) | {name: np.where(some, columns[name], 0) for name in decodes}
    first["sampled"] = np.where(some, sequences, 0) + own
    nothing = np.zeros_like(sequences)
    later = dict.fromkeys(columns, nothing) | {"decode_sequences": sequences, "decode_tokens": sequences}
    later |= {"decode_kv_tokens": kv, "decode_pairs": kv, "sampled": sequences}
    any_first = (some | (columns["prefill_sequences"] > 0)).astype(np.int64)
    return (any_first, first), (np.maximum(drafts - 1, 0), later)
