"""The service model of a `Roofline` entry: a table look-up, and a few comparisons per kind of attention."""

from collections.abc import Callable
from functools import partial
from math import inf

from stageline.cost.entries import FullAttention, LinearAttention, Phase, Ring, Roofline
from stageline.cost.measured import surface_ns
from stageline.cost.tables import (
    apart,
    expert_tables,
    halves_tables,
    head_table,
    imbalanced_experts,
    work_table,
)
from stageline.cost.together import captured_sizes, drafting_passes, in_step
from stageline.cost.totals import BatchTotals


def attention_rows(entry: Roofline) -> list[tuple[float, FullAttention]]:
    """(layers, coefficients) of the full attention of every group, cache by cache."""
    found = [(float(g.layers), g.attention) for g in entry.groups if g.attention]
    return found + [(float(g.layers), a) for g in entry.groups for a in g.more_attention or ()]


def linear_rows(entry: Roofline) -> list[tuple[float, LinearAttention]]:
    """(layers, coefficients) of every group with linear attention."""
    return [(float(g.layers), g.linear) for g in entry.groups if g.linear]


class RooflineModel:
    """See `Roofline`.

    Monotone in every field of BatchTotals, except where a ring switches between KV and
    queries, and where one more sequence shortens the mean span of a `Phase`.
    """

    def __init__(self, entry: Roofline) -> None:
        self.entry = entry
        self.table = work_table(entry)
        self._values = self.table.values  # grows in place
        self._halves = halves_tables(entry)
        self._experts = imbalanced_experts(entry)
        self._apart = apart(entry)
        self._context, self._ranks, self._graphs = entry.context_ranks, entry.ranks or 1, entry.graphs or None
        self._sizes = captured_sizes(self._graphs) if self._graphs else []
        self._routed = expert_tables(entry)
        self._full = [(layers, _attention_of(a)) for layers, a in attention_rows(entry)]
        linear = linear_rows(entry)
        self._linear = [(n, a.token_ns, a.sequence_ns) for n, a in linear if not (a.decode and a.prefill)]
        self._linear_phases = [(n, _linear_of(a.decode, a.prefill)) for n, a in linear if a.decode and a.prefill]
        self._head = (entry.head.row_ns, entry.head.weights_ns, entry.head.overhead_ns) if entry.head else None
        self._head_table = head_table(entry)
        has_host = entry.floor_ns or entry.sequence_ns or entry.step_ns
        host = entry.floor_ns, entry.sequence_ns, entry.step_ns, bool(entry.host_hidden)
        self._host = host if has_host else None
        self._drafter = drafter_model(entry)
        self.uses_draw = bool(self._experts)

    def service_ns(self, totals: BatchTotals, draw: int = 0) -> int:
        """Token table + experts + linear attention + full attention (decode, then prefill) + head, rounded once."""
        tokens = totals.decode_tokens - (-totals.prefill_tokens // self._context)
        if self._apart:
            return self._apart_ns(totals, tokens, draw)
        ns = self._device_ns(totals, tokens, tokens, tokens, draw)
        if self._drafter:
            ns += self._drafter.drafting_ns(totals)
        return round(self._with_host(ns, totals) if self._host else ns) or 1

    def drafting_ns(self, totals: BatchTotals) -> float:
        """What a drafter takes, of which this is the model; see `Drafter`."""
        ranks, ns = self.entry.context_ranks, 0.0
        for passes, drafted in drafting_passes(totals):
            tokens = drafted.decode_tokens - (-drafted.prefill_tokens // ranks)
            ns += passes * self._device_ns(drafted, tokens, tokens, tokens, 0)
        return ns

    def _apart_ns(self, totals: BatchTotals, routed: int, draw: int) -> int:
        """With ranks that step together, or graphs: only experts see the tokens that are `routed`."""
        if self._ranks > 1:
            totals = in_step(totals, self._ranks)
            tokens = totals.decode_tokens - (-totals.prefill_tokens // self._context)
        else:
            tokens = routed
        graphs, ranks = self._graphs, self._ranks
        padded, own, size = tokens, tokens if ranks == 1 else -(-tokens // ranks), 0
        if graphs and own < len(self._sizes) and not (graphs.decode_only and totals.prefill_sequences):
            size = self._sizes[own]
            padded = size * ranks or tokens
        ns = self._device_ns(totals, tokens, padded, routed, draw)
        if graphs and not size:
            ns = max(ns, graphs.eager_ns)
        if self._drafter:
            ns += self._drafter.drafting_ns(totals)
        return round(self._with_host(ns, totals) if self._host else ns) or 1

    def _device_ns(self, totals: BatchTotals, tokens: int, padded: int, routed: int, draw: int) -> float:
        """What the devices take, without a drafter: tables of `padded` tokens, experts of those `routed` to them."""
        values = self._values
        whole = values[padded] if padded < len(values) else self.table.at(padded)
        ns = 0.0
        for experts in self._experts:
            ns += experts.ns(routed, draw)
        for layers, token_ns, sequence_ns in self._linear:
            update = token_ns * tokens
            state = sequence_ns * (totals.decode_sequences + totals.prefill_sequences)
            ns += layers * (update if update > state else state)
        for layers, scan in self._linear_phases:
            ns += layers * scan(totals)
        for layers, attention in self._full:
            ns += layers * attention(totals)
        if self._routed:
            whole += self._routed[0].at(routed)
        ns = min(whole + ns, self._halved_ns(ns, padded, routed)) if self._halves else whole + ns
        if self._head and totals.sampled:
            rows, weights = self._head[0] * totals.sampled, self._head[1]
            ns += (rows if rows > weights else weights) + self._head[2]
            if self._head_table:
                ns += self._head_table.at(totals.sampled)
        return ns

    def _halved_ns(self, ns: float, padded: int, routed: int) -> float:
        """Of two half batches whose work and collectives overlap; `ns`: what does not depend on tokens alone."""
        assert self._halves
        work = self._halves[0].at(padded)
        if self._routed:
            work += self._routed[1].at(routed)
        return max(work + ns, self._halves[1].at(padded))

    def _with_host(self, ns: float, totals: BatchTotals) -> float:
        assert self._host
        floor_ns, sequence_ns, step_ns, hidden = self._host
        sequences = (totals.decode_sequences + totals.prefill_sequences) // self._ranks
        ns = ns if ns > floor_ns else floor_ns
        if hidden:
            return max(ns, sequence_ns * sequences + step_ns)
        return ns + sequence_ns * sequences + step_ns


def drafter_model(entry: Roofline) -> "RooflineModel | None":
    """The model of an entry's drafter alone; None without one."""
    if not entry.drafter:
        return None
    return RooflineModel(
        Roofline(groups=entry.drafter.groups, head=entry.drafter.head, context_ranks=entry.context_ranks)
    )


Measured = Callable[[float, int, int, int], float]


def _attention_ns(a: FullAttention, one: Measured | None, many: Measured | None, totals: BatchTotals) -> float:
    pairs, kv = totals.decode_pairs, totals.decode_kv_tokens
    prefill_pairs, prefill_kv = totals.prefill_pairs, totals.prefill_kv_tokens
    window = a.window_tokens
    if window:
        pairs = min(pairs, totals.decode_tokens * window)
        kv = min(kv, totals.decode_sequences * window + totals.decode_tokens)
        prefill_pairs = min(prefill_pairs, totals.prefill_tokens * (window + (a.window_tile or 0)))
        prefill_kv = min(prefill_kv, totals.prefill_sequences * window + totals.prefill_tokens)
    work = a.decode_pair_ns * pairs
    if one:
        decode = one(work, kv, totals.decode_tokens, totals.decode_sequences)
    else:
        read = a.kv_ns * kv
        decode = work if work > read else read
    work = a.prefill_pair_ns * prefill_pairs
    if many:
        prefill = many(work, prefill_kv, totals.prefill_tokens, totals.prefill_sequences)
    else:
        read = a.kv_ns * prefill_kv
        prefill = work if work > read else read
    if a.ring:
        if totals.decode_tokens:
            decode += a.ring.decode_ns
        if totals.prefill_tokens:
            prefill = max(prefill, _passed_ns(a.ring, totals)) + a.ring.steps_ns
    return decode + prefill


def _phase_of(p: Phase) -> Callable[[float, int, int, int], float]:
    """A phase as a function of (work, kv, tokens, sequences); its coefficients are looked up once."""
    if p.surface:
        return surface_ns(p.surface)
    kv_ns, unhidden, fixed_ns = p.kv_ns, p.unhidden, p.fixed_ns
    token_ns, sequence_ns, span_ns, depth = p.token_ns, p.sequence_ns, p.span_ns, p.depth_tokens

    def phase_ns(work: float, kv: int, tokens: int, sequences: int) -> float:
        if not sequences:
            return 0.0
        read = kv_ns * kv
        ns = fixed_ns + (work + unhidden * read if work > read else read + unhidden * work)
        return ns + token_ns * tokens + sequence_ns * sequences + span_ns * kv / sequences

    held, spilt_ns = (p.spill.held_tokens, p.spill.token_ns) if p.spill else (inf, 0.0)

    def deep_ns(work: float, kv: int, tokens: int, sequences: int) -> float:
        if not sequences:
            return 0.0
        ns = phase_ns(work, kv, tokens, sequences) + depth * work / (tokens or 1)
        return ns + spilt_ns * tokens if tokens > held else ns

    return deep_ns if depth or p.spill else phase_ns


def _attention_of(a: FullAttention) -> Callable[[BatchTotals], float]:
    """Attention of one layer, by totals."""
    if a.window_tokens or a.ring or not (a.decode and a.prefill):
        one, many = (_phase_of(p) if p else None for p in (a.decode, a.prefill))
        return partial(_attention_ns, a, one, many)
    decode, prefill, decode_pair_ns, prefill_pair_ns = (
        _phase_of(a.decode), _phase_of(a.prefill), a.decode_pair_ns, a.prefill_pair_ns
    )  # fmt: skip

    def attention_ns(t: BatchTotals) -> float:
        ns = 0.0
        if t.decode_sequences:
            work = decode_pair_ns * t.decode_pairs
            ns = decode(work, t.decode_kv_tokens, t.decode_tokens, t.decode_sequences)
        if t.prefill_sequences:
            work = prefill_pair_ns * t.prefill_pairs
            ns += prefill(work, t.prefill_kv_tokens, t.prefill_tokens, t.prefill_sequences)
        return ns

    return attention_ns


def _linear_of(decode: Phase, prefill: Phase) -> Callable[[BatchTotals], float]:
    """Linear attention of one layer, by totals."""
    one, many = _phase_of(decode), _phase_of(prefill)

    def linear_ns(t: BatchTotals) -> float:
        ns = one(0.0, t.decode_tokens, t.decode_tokens, t.decode_sequences) if t.decode_sequences else 0.0
        if t.prefill_sequences:
            ns += many(0.0, t.prefill_tokens, t.prefill_tokens, t.prefill_sequences)
        return ns

    return linear_ns


def _passed_ns(ring: Ring, totals: BatchTotals) -> float:
    """Time of the transfer round the ring: KV or queries."""
    new, kv = totals.prefill_tokens, totals.prefill_kv_tokens
    if new >= ring.kv_threshold_tokens or new >= ring.kv_share * kv:
        return ring.kv_token_ns * kv
    return ring.query_token_ns * new
