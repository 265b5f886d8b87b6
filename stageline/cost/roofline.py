"""The service model of a `Roofline` entry: a table look-up, and a few comparisons per kind of attention."""

from stageline.cost.entries import FullAttention, Ring, Roofline
from stageline.cost.tables import halves_tables, imbalanced_experts, work_table
from stageline.cost.totals import BatchTotals


def attention_rows(entry: Roofline) -> list[tuple[float, FullAttention]]:
    """(layers, coefficients) of the full attention of every group, cache by cache."""
    found = [(float(g.layers), g.attention) for g in entry.groups if g.attention]
    return found + [(float(g.layers), a) for g in entry.groups for a in g.more_attention or ()]


def linear_rows(entry: Roofline) -> list[tuple[float, float, float]]:
    """(layers, token_ns, sequence_ns) of every group with linear attention."""
    return [(float(g.layers), g.linear.token_ns, g.linear.sequence_ns) for g in entry.groups if g.linear]


class RooflineModel:
    """See `Roofline`. Monotone in every field of BatchTotals, except where a ring switches between KV and queries."""

    def __init__(self, entry: Roofline) -> None:
        self.entry = entry
        self.table = work_table(entry)
        self._values = self.table.values  # grows in place
        self._halves = halves_tables(entry)
        self._experts = imbalanced_experts(entry)
        self._full = attention_rows(entry)
        self._linear = linear_rows(entry)
        self._head = (entry.head.row_ns, entry.head.weights_ns, entry.head.overhead_ns) if entry.head else None
        self._host = bool(entry.floor_ns or entry.sequence_ns or entry.step_ns)
        self.uses_draw = bool(self._experts)

    def service_ns(self, totals: BatchTotals, draw: int = 0) -> int:
        """Token table + experts + linear attention + full attention (decode, then prefill) + head, rounded once."""
        tokens = totals.decode_tokens - (-totals.prefill_tokens // self.entry.context_ranks)
        values = self._values
        whole = values[tokens] if tokens < len(values) else self.table.at(tokens)
        ns = 0.0
        for experts in self._experts:
            ns += experts.ns(tokens, draw)
        for layers, token_ns, sequence_ns in self._linear:
            update = token_ns * tokens
            state = sequence_ns * (totals.decode_sequences + totals.prefill_sequences)
            ns += layers * (update if update > state else state)
        for layers, attention in self._full:
            ns += layers * _attention_ns(attention, totals)
        if self._halves:
            work, collectives = self._halves
            ns = min(whole + ns, max(work.at(tokens) + ns, collectives.at(tokens)))
        else:
            ns = whole + ns
        if self._head and totals.sampled:
            rows, weights = self._head[0] * totals.sampled, self._head[1]
            ns += (rows if rows > weights else weights) + self._head[2]
        return round(self._with_host(ns, totals) if self._host else ns) or 1

    def _with_host(self, ns: float, totals: BatchTotals) -> float:
        e = self.entry
        sequences = totals.decode_sequences + totals.prefill_sequences
        return max(ns, e.floor_ns) + e.sequence_ns * sequences + e.step_ns


def _attention_ns(a: FullAttention, totals: BatchTotals) -> float:
    pairs, kv = totals.decode_pairs, totals.decode_kv_tokens
    prefill_pairs, prefill_kv = totals.prefill_pairs, totals.prefill_kv_tokens
    window = a.window_tokens
    if window:
        pairs = min(pairs, totals.decode_tokens * window)
        kv = min(kv, totals.decode_sequences * window + totals.decode_tokens)
        prefill_pairs = min(prefill_pairs, totals.prefill_tokens * window)
        prefill_kv = min(prefill_kv, totals.prefill_sequences * window + totals.prefill_tokens)
    work, read = a.decode_pair_ns * pairs, a.kv_ns * kv
    decode = work if work > read else read
    work, read = a.prefill_pair_ns * prefill_pairs, a.kv_ns * prefill_kv
    prefill = work if work > read else read
    if a.ring:
        if totals.decode_tokens:
            decode += a.ring.decode_ns
        if totals.prefill_tokens:
            prefill = max(prefill, _passed_ns(a.ring, totals)) + a.ring.steps_ns
    return decode + prefill


def _passed_ns(ring: Ring, totals: BatchTotals) -> float:
    """Time of the transfer round the ring: KV or queries."""
    new, kv = totals.prefill_tokens, totals.prefill_kv_tokens
    if new >= ring.kv_threshold_tokens or new >= ring.kv_share * kv:
        return ring.kv_token_ns * kv
    return ring.query_token_ns * new
