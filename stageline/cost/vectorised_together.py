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
