"""The vectorised twin of `compile_cost`: service times of many microbatches at once, equal to the last bit.

It imports numpy, so stage servers never load it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from stageline.cost.arrays import Columns, DrawArray, FloatArray, IntArray, VectorisedModel
from stageline.cost.entries import Affine, CostEntry, FullAttention, Phase, Ring, Roofline
from stageline.cost.measured_entries import MeasuredCost
from stageline.cost.roofline import attention_rows, linear_rows
from stageline.cost.tables import (
    TABLE_LIMIT,
    ImbalancedExperts,
    TokenTable,
    expert_tables,
    halves_tables,
    head_table,
    imbalanced_experts,
    work_table,
)
from stageline.cost.vectorised_measured import surface_of, vectorised_measured
from stageline.cost.vectorised_together import captured_sizes, drafting_passes, in_step


def compile_vectorised(entry: CostEntry) -> VectorisedModel:
    """A function (columns, draws) -> int64 ns, all of one length; draws are 64-bit numbers, and None means zeros."""
    if isinstance(entry, Affine):
        return _affine(entry)
    return vectorised_measured(entry) if isinstance(entry, MeasuredCost) else _roofline(entry)


def _affine(e: Affine) -> VectorisedModel:
    def service_ns(c: Columns, draws: DrawArray | None = None) -> IntArray:
        ns = e.base_ns + e.token_ns * (c["decode_tokens"] + c["prefill_tokens"]) + e.sampled_ns * c["sampled"]
        ns = ns + e.kv_token_ns * (c["decode_kv_tokens"] + c["prefill_kv_tokens"])
        if draws is not None and e.imbalance_ns:
            ns = ns + (draws % np.uint64(e.imbalance_ns + 1)).astype(np.int64)
        out: IntArray = np.maximum(ns, 1)
        return out

    return service_ns


def _roofline(entry: Roofline) -> VectorisedModel:
    device_ns, drafting_ns, ranks = _device(entry), _drafting(entry), entry.ranks or 1

    def service_ns(c: Columns, draws: DrawArray | None = None) -> IntArray:
        routed = c["decode_tokens"] - (-c["prefill_tokens"] // entry.context_ranks)
        c = in_step(c, ranks)
        ns = device_ns(c, routed, draws) + drafting_ns(c)
        ns = _with_host(entry, ns, (c["decode_sequences"] + c["prefill_sequences"]) // ranks)
        out: IntArray = np.maximum(np.rint(ns).astype(np.int64), 1)
        return out

    return service_ns


DeviceModel = Callable[[Columns, IntArray, DrawArray | None], FloatArray]


def _device(entry: Roofline) -> DeviceModel:
    """A function (columns, tokens of experts, draws) -> ns on the devices, without a drafter."""
    by_tokens, by_sequences, graphs, head = _by_tokens(entry), _by_sequences(entry), entry.graphs or None, entry.head
    ranks, head_ns = entry.ranks or 1, _head_ns(entry)

    def device_ns(c: Columns, routed: IntArray, draws: DrawArray | None) -> FloatArray:
        tokens = c["decode_tokens"] - (-c["prefill_tokens"] // entry.context_ranks)
        sizes = captured_sizes(graphs, -(-tokens // ranks), c["prefill_sequences"]) if graphs else None
        padded = tokens if sizes is None else np.where(sizes > 0, sizes * ranks, tokens)
        whole, halves, ns = by_tokens(padded, routed, draws)
        ns = by_sequences(c, tokens, ns)
        ns = np.minimum(whole + ns, np.maximum(halves[0] + ns, halves[1])) if halves else whole + ns
        if head:
            rows = np.maximum(head.row_ns * c["sampled"], head.weights_ns) + head.overhead_ns
            ns = np.where(c["sampled"] > 0, ns + rows, ns)
            if head_ns:
                ns = np.where(c["sampled"] > 0, ns + head_ns(c["sampled"]), ns)
        if graphs and sizes is not None:
            ns = np.where(sizes > 0, ns, np.maximum(ns, graphs.eager_ns))
        return ns

    return device_ns


def _drafting(entry: Roofline) -> Callable[[Columns], FloatArray | float]:
    """A function columns -> ns of the entry's drafter; 0 without one."""
    if not entry.drafter:
        return lambda _: 0.0
    alone = Roofline(groups=entry.drafter.groups, head=entry.drafter.head, context_ranks=entry.context_ranks)
    device_ns = _device(alone)

    def drafting_ns(c: Columns) -> FloatArray:
        ns = np.zeros(len(c["sampled"]))
        for passes, columns in drafting_passes(c):
            tokens = columns["decode_tokens"] - (-columns["prefill_tokens"] // entry.context_ranks)
            ns = ns + np.where(passes > 0, passes * device_ns(columns, tokens, None), 0.0)
        return ns

    return drafting_ns


def _head_ns(entry: Roofline) -> Callable[[IntArray], FloatArray] | None:
    table = head_table(entry)
    return _look_up(table) if table else None


Halves = tuple[FloatArray, FloatArray]  # work and collectives of two half batches
ByTokens = Callable[[IntArray, IntArray, DrawArray | None], tuple[FloatArray, Halves | None, FloatArray]]
BySequences = Callable[[Columns, IntArray, FloatArray], FloatArray]


def _by_tokens(entry: Roofline) -> ByTokens:
    """A function (tokens, tokens of experts, draws) -> (tables, halves if they may overlap, imbalanced experts)."""
    look_up, imbalanced = _look_up(work_table(entry)), [_imbalanced(e) for e in imbalanced_experts(entry)]
    tables, routed_tables = halves_tables(entry), expert_tables(entry)
    of_halves = (_look_up(tables[0]), _look_up(tables[1])) if tables else None
    of_experts = (_look_up(routed_tables[0]), _look_up(routed_tables[1])) if routed_tables else None

    def by_tokens(
        tokens: IntArray, routed: IntArray, draws: DrawArray | None
    ) -> tuple[FloatArray, Halves | None, FloatArray]:
        whole, ns = look_up(tokens), np.zeros(len(tokens))
        for experts in imbalanced:
            ns = ns + experts(routed, draws)
        halves = (of_halves[0](tokens), of_halves[1](tokens)) if of_halves else None
        if of_experts:
            whole = whole + of_experts[0](routed)
            halves = (halves[0] + of_experts[1](routed), halves[1]) if halves else None
        return whole, halves, ns

    return by_tokens


def _by_sequences(entry: Roofline) -> BySequences:
    """A function (columns, tokens, ns) -> ns with linear attention, then full attention, added."""
    full, linear = attention_rows(entry), linear_rows(entry)

    def by_sequences(c: Columns, tokens: IntArray, ns: FloatArray) -> FloatArray:
        sequences = c["decode_sequences"] + c["prefill_sequences"]
        for layers, part in linear:
            if not (part.decode and part.prefill):
                ns = ns + layers * np.maximum(part.token_ns * tokens, part.sequence_ns * sequences)
        for layers, part in linear:
            if part.decode and part.prefill:
                both = _linear_phase(part.decode, c, "decode") + _linear_phase(part.prefill, c, "prefill")
                ns = ns + layers * both
        for layers, attention in full:
            decode = _attention(c, "decode", attention.decode_pair_ns, attention)
            prefill = _attention(c, "prefill", attention.prefill_pair_ns, attention)
            if attention.ring:
                decode, prefill = _ring(c, attention.ring, decode, prefill)
            ns = ns + layers * (decode + prefill)
        return ns

    return by_sequences


def _with_host(entry: Roofline, ns: FloatArray, sequences: IntArray) -> FloatArray:
    if not (entry.floor_ns or entry.sequence_ns or entry.step_ns):
        return ns
    out: FloatArray = np.maximum(ns, entry.floor_ns)
    if entry.host_hidden:
        out = np.maximum(out, entry.sequence_ns * sequences + entry.step_ns)
    else:
        out = out + entry.sequence_ns * sequences + entry.step_ns
    return out


def _look_up(table: TokenTable) -> Callable[[IntArray], FloatArray]:
    """A function that looks token counts up in a TokenTable, as an array that grows with it."""
    values = np.array(table.values)

    def look_up(tokens: IntArray) -> FloatArray:
        nonlocal values
        largest = int(tokens.max(initial=0))
        if largest >= TABLE_LIMIT:
            return np.array([table.at(int(t)) for t in tokens])
        if largest >= len(values):
            table.grow(largest)
            values = np.array(table.values)
        return values[tokens]

    return look_up


def _imbalanced(part: ImbalancedExperts) -> Callable[[IntArray, DrawArray | None], FloatArray]:
    factors, reading = np.array(part.factors), np.array(part.reading)

    def experts_ns(tokens: IntArray, draws: DrawArray | None) -> FloatArray:
        picked = factors[draws % np.uint64(len(factors))] if draws is not None else factors[0]
        work, read = part.token_ns * tokens * picked, reading[np.minimum(tokens, len(reading) - 1)]
        out: FloatArray = part.layers * (np.maximum(work, read) + part.unhidden * np.minimum(work, read))
        return out

    return experts_ns


def _attention(c: Columns, phase: str, pair_ns: float, a: FullAttention) -> FloatArray:
    pairs, kv = c[f"{phase}_pairs"], c[f"{phase}_kv_tokens"]
    if a.window_tokens:
        window = a.window_tokens + (a.window_tile or 0 if phase == "prefill" else 0)
        pairs = np.minimum(pairs, c[f"{phase}_tokens"] * window)
        kv = np.minimum(kv, c[f"{phase}_sequences"] * a.window_tokens + c[f"{phase}_tokens"])
    measured = a.decode if phase == "decode" else a.prefill
    if measured:
        return _phase(measured, pair_ns * pairs, kv, c[f"{phase}_tokens"], c[f"{phase}_sequences"])
    out: FloatArray = np.maximum(pair_ns * pairs, a.kv_ns * kv)
    return out


def _phase(
    p: Phase, work: npt.NDArray[np.floating[Any]], kv: IntArray, tokens: IntArray, sequences: IntArray
) -> FloatArray:
    if p.surface:
        return surface_of(p.surface)(work, kv, tokens, sequences)
    read = p.kv_ns * kv
    ns = p.fixed_ns + (np.maximum(work, read) + p.unhidden * np.minimum(work, read))
    ns = ns + p.token_ns * tokens + p.sequence_ns * sequences + p.span_ns * kv / np.maximum(sequences, 1)
    if p.depth_tokens:
        ns = ns + p.depth_tokens * work / np.maximum(tokens, 1)
    if p.spill:
        ns = ns + np.where(tokens > p.spill.held_tokens, p.spill.token_ns * tokens, 0.0)
    out: FloatArray = np.where(sequences > 0, ns, 0.0)
    return out


def _linear_phase(p: Phase, c: Columns, phase: str) -> FloatArray:
    tokens, sequences = c[f"{phase}_tokens"], c[f"{phase}_sequences"]
    return _phase(p, np.zeros(len(tokens)), tokens, tokens, sequences)


def _ring(c: Columns, ring: Ring, decode: FloatArray, prefill: FloatArray) -> tuple[FloatArray, FloatArray]:
    new, kv = c["prefill_tokens"], c["prefill_kv_tokens"]
    pass_kv = (new >= ring.kv_threshold_tokens) | (new >= ring.kv_share * kv)
    passed = np.where(pass_kv, ring.kv_token_ns * kv, ring.query_token_ns * new)
    prefill = np.where(new > 0, np.maximum(prefill, passed) + ring.steps_ns, prefill)
    return np.where(c["decode_tokens"] > 0, decode + ring.decode_ns, decode), prefill
