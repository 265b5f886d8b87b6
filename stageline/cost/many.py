"""Service times of many microbatches at once: the vectorised twin of `compile_cost`, equal to the last bit.

The only module of this package that imports numpy; a stage server never loads it.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from stageline.cost.entries import Affine, CostEntry, Roofline
from stageline.cost.roofline import attention_rows, linear_rows
from stageline.cost.tables import TABLE_LIMIT, TokenTable

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Columns = Mapping[str, Ints]  # Load's fields, all of one length
ManyModel = Callable[[Columns, npt.NDArray[np.uint64] | None], Ints]


def compile_many(entry: CostEntry) -> ManyModel:
    """A function (columns, draws) -> ns, int64. `draws`: one 64-bit number per microbatch; None stands for zeros."""
    return _affine(entry) if isinstance(entry, Affine) else _roofline(entry)


def service_ns_many(entry: CostEntry, columns: Columns, draws: npt.NDArray[np.uint64] | None = None) -> Ints:
    """`compile_many(entry)` applied once."""
    return compile_many(entry)(columns, draws)


def _affine(e: Affine) -> ManyModel:
    def many(c: Columns, draws: npt.NDArray[np.uint64] | None = None) -> Ints:
        ns = e.base_ns + e.token_ns * (c["decode_tokens"] + c["prefill_tokens"]) + e.sampled_ns * c["sampled"]
        ns = ns + e.kv_token_ns * (c["decode_kv_tokens"] + c["prefill_kv_tokens"])
        if draws is not None and e.imbalance_ns:
            ns = ns + (draws % np.uint64(e.imbalance_ns + 1)).astype(np.int64)
        out: Ints = np.maximum(ns, 1)
        return out

    return many


def _roofline(entry: Roofline) -> ManyModel:
    look_up, full, linear, head = _table(entry), attention_rows(entry), linear_rows(entry), entry.head

    def many(c: Columns, draws: npt.NDArray[np.uint64] | None = None) -> Ints:
        tokens = c["decode_tokens"] + c["prefill_tokens"]
        ns = look_up(tokens)
        for layers, token_ns, sequence_ns in linear:
            sequences = c["decode_sequences"] + c["prefill_sequences"]
            ns = ns + layers * np.maximum(token_ns * tokens, sequence_ns * sequences)
        for layers, decode_pair_ns, prefill_pair_ns, kv_ns, window in full:
            decode = _attention(c, "decode", decode_pair_ns, kv_ns, window)
            ns = ns + layers * (decode + _attention(c, "prefill", prefill_pair_ns, kv_ns, window))
        if head:
            rows = np.maximum(head.row_ns * c["sampled"], head.weights_ns) + head.overhead_ns
            ns = np.where(c["sampled"] > 0, ns + rows, ns)
        out: Ints = np.maximum(np.rint(ns).astype(np.int64), 1)
        return out

    return many


def _table(entry: Roofline) -> Callable[[Ints], Doubles]:
    """The token table as an array, which follows the table's growth."""
    table = TokenTable(entry)
    values = np.array(table.values)

    def look_up(tokens: Ints) -> Doubles:
        nonlocal values
        largest = int(tokens.max(initial=0))
        if largest >= TABLE_LIMIT:
            return np.array([table.at(int(t)) for t in tokens])
        if largest >= len(values):
            table.grow(largest)
            values = np.array(table.values)
        return values[tokens]

    return look_up


def _attention(c: Columns, phase: str, pair_ns: float, kv_ns: float, window: int) -> Doubles:
    pairs, kv = c[f"{phase}_pairs"], c[f"{phase}_kv_tokens"]
    if window:
        pairs = np.minimum(pairs, c[f"{phase}_tokens"] * window)
        kv = np.minimum(kv, c[f"{phase}_sequences"] * window + c[f"{phase}_tokens"])
    out: Doubles = np.maximum(pair_ns * pairs, kv_ns * kv)
    return out
