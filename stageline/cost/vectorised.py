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
    halves_tables,
    head_table,
    imbalanced_experts,
    work_table,
)
from stageline.cost.vectorised_measured import surface_of, vectorised_measured


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
    look_up, full, linear, head = _look_up(work_table(entry)), attention_rows(entry), linear_rows(entry), entry.head
    tables, imbalanced = halves_tables(entry), [_imbalanced(e) for e in imbalanced_experts(entry)]
    rows_table = head_table(entry)
    head_ns = _look_up(rows_table) if rows_table else None
    halves = (_look_up(tables[0]), _look_up(tables[1])) if tables else None

    def service_ns(c: Columns, draws: DrawArray | None = None) -> IntArray:
        tokens = c["decode_tokens"] - (-c["prefill_tokens"] // entry.context_ranks)
        sequences = c["decode_sequences"] + c["prefill_sequences"]
        whole = look_up(tokens)
        ns = np.zeros(len(tokens))
        for experts in imbalanced:
            ns = ns + experts(tokens, draws)
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
        if halves:
            work, collectives = halves
            ns = np.minimum(whole + ns, np.maximum(work(tokens) + ns, collectives(tokens)))
        else:
            ns = whole + ns
        if head:
            rows = np.maximum(head.row_ns * c["sampled"], head.weights_ns) + head.overhead_ns
            ns = np.where(c["sampled"] > 0, ns + rows, ns)
            if head_ns:
                ns = np.where(c["sampled"] > 0, ns + head_ns(c["sampled"]), ns)
        if entry.floor_ns or entry.sequence_ns or entry.step_ns:
            ns = np.maximum(ns, entry.floor_ns) + entry.sequence_ns * sequences + entry.step_ns
        out: IntArray = np.maximum(np.rint(ns).astype(np.int64), 1)
        return out

    return service_ns


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
