"""What bounds the operations of a visit: the parts of its service time, told apart.

An operation's time goes to the resource that it waits for, here the longer of computing and reading; what the other one
adds beside it goes to the other. Times that were measured as a whole are not told apart.
"""

from collections.abc import Iterator

from stageline.cost.entries import CostEntry, FullAttention, LayerGroup, LinearAttention, Phase, Roofline
from stageline.cost.measured import curve_ns, surface_ns
from stageline.cost.service import compile_cost
from stageline.cost.tables import distinct_experts
from stageline.cost.together import captured_sizes, drafting_passes, in_step
from stageline.cost.totals import BatchTotals

KINDS = ("memory", "compute", "network", "host", "fixed", "measured")
Part = tuple[str, float]


def bounds_ns(entry: CostEntry, totals: BatchTotals) -> dict[str, float]:
    """ns by kind, which add up to the service time; `fixed`: launches and latencies of kernels.

    Host time is what it adds to the devices'. What overlapping half batches save is taken from the network.
    """
    found = dict.fromkeys(KINDS, 0.0)
    whole = float(compile_cost(entry).service_ns(totals))
    if not isinstance(entry, Roofline):
        return found | {"measured": whole}
    if entry.drafter:
        alone = Roofline(groups=entry.drafter.groups, head=entry.drafter.head, context_ranks=entry.context_ranks)
        for passes, drafted in drafting_passes(totals):
            for kind, ns in bounds_ns(alone, drafted).items() if passes else ():
                found[kind] += passes * ns
    routed = _tokens(entry, totals)
    if entry.ranks:
        totals = in_step(totals, entry.ranks)
    tokens = _padded(entry, totals)
    for group in entry.groups:
        for kind, ns in _group(group, totals, tokens, routed):
            found[kind] += ns * group.layers
    if entry.head and totals.sampled:
        for kind, ns in _longer(entry.head.row_ns * totals.sampled, entry.head.weights_ns, 0.0):
            found[kind] += ns
        found["fixed"] += entry.head.overhead_ns
        if entry.head.curve:
            found["measured"] += curve_ns(entry.head.curve, totals.sampled)
    rest = whole - sum(found.values())
    kind = "network" if rest < 0 and entry.overlap else "host"
    return found | {kind: max(0.0, found[kind] + rest)}


def _tokens(entry: Roofline, totals: BatchTotals) -> int:
    return totals.decode_tokens - (-totals.prefill_tokens // entry.context_ranks)


def _padded(entry: Roofline, totals: BatchTotals) -> int:
    """New tokens, at the size of the graph that holds them."""
    tokens, graphs, ranks = _tokens(entry, totals), entry.graphs, entry.ranks or 1
    if not graphs or (graphs.decode_only and totals.prefill_sequences):
        return tokens
    sizes, own = captured_sizes(graphs), -(-tokens // ranks)
    return sizes[own] * ranks or tokens if own < len(sizes) else tokens


def _longer(compute: float, memory: float, unhidden: float) -> Iterator[Part]:
    yield ("compute", compute if compute > memory else unhidden * compute)
    yield ("memory", memory if memory >= compute else unhidden * memory)


def _group(group: LayerGroup, totals: BatchTotals, tokens: int, routed: int) -> Iterator[Part]:
    """Of one layer."""
    yield ("fixed", group.overhead_ns)
    yield ("memory", group.transfer_token_ns * tokens)
    for gemm in group.gemms:
        yield from _longer(gemm.token_ns * tokens, gemm.weights_ns, gemm.unhidden or 0.0)
    for curve in group.work or ():
        yield ("measured", curve_ns(curve, tokens))
    for collective in group.collectives:
        ways = [way.latency_ns + way.token_ns * tokens for way in collective.ways]
        yield ("network", curve_ns(collective.curve, tokens) if collective.curve else min(ways))
    if e := group.experts:
        if e.curve:
            yield ("measured", curve_ns(e.curve, routed))
        else:
            distinct = distinct_experts(e.experts, e.top_k, routed, e.spread or 1)
            work = e.token_ns * routed * (e.imbalance[0] if e.imbalance else 1.0)
            yield from _longer(work, e.expert_ns * distinct[min(routed, len(distinct) - 1)], e.unhidden or 0.0)
    for attention in (group.attention, *(group.more_attention or ())):
        if attention:
            yield from _attention(attention, totals)
    if group.linear:
        yield from _linear(group.linear, totals, tokens)


def _attention(a: FullAttention, t: BatchTotals) -> Iterator[Part]:
    window, tile = a.window_tokens, a.window_tile or 0
    prefill = 0.0
    for name in ("decode", "prefill"):
        tokens, sequences = getattr(t, f"{name}_tokens"), getattr(t, f"{name}_sequences")
        pairs, kv = getattr(t, f"{name}_pairs"), getattr(t, f"{name}_kv_tokens")
        if window:
            pairs = min(pairs, tokens * (window + (tile if name == "prefill" else 0)))
            kv = min(kv, sequences * window + tokens)
        work = getattr(a, f"{name}_pair_ns") * pairs
        phase: Phase | None = getattr(a, name) or None
        found = list(_phase(phase, work, kv, (tokens, sequences)) if phase else _longer(work, a.kv_ns * kv, 0.0))
        prefill = sum(ns for _, ns in found)
        yield from found
    if a.ring and t.decode_tokens:
        yield ("network", a.ring.decode_ns)
    if a.ring and t.prefill_tokens:
        new, kv = t.prefill_tokens, t.prefill_kv_tokens
        passed = new >= a.ring.kv_threshold_tokens or new >= a.ring.kv_share * kv
        moved = a.ring.kv_token_ns * kv if passed else a.ring.query_token_ns * new
        yield ("network", max(0.0, moved - prefill) + a.ring.steps_ns)


def _phase(p: Phase, work: float, kv: int, size: tuple[int, int]) -> Iterator[Part]:
    """`size`: new tokens and sequences."""
    tokens, sequences = size
    if not sequences:
        return
    if p.surface:
        yield ("measured", surface_ns(p.surface)(work, kv, tokens, sequences))
        return
    yield from _longer(work, p.kv_ns * kv, p.unhidden)
    yield ("memory", p.token_ns * tokens)
    if p.spill and tokens > p.spill.held_tokens:
        yield ("memory", p.spill.token_ns * tokens)
    yield ("compute", p.depth_tokens * work / tokens if tokens else 0.0)
    yield ("fixed", p.fixed_ns + p.sequence_ns * sequences + p.span_ns * kv / sequences)


def _linear(a: LinearAttention, t: BatchTotals, tokens: int) -> Iterator[Part]:
    if a.decode and a.prefill:
        for name, phase in (("decode", a.decode), ("prefill", a.prefill)):
            new, sequences = getattr(t, f"{name}_tokens"), getattr(t, f"{name}_sequences")
            yield from _phase(phase, 0.0, new, (new, sequences))
        return
    yield from _longer(a.token_ns * tokens, a.sequence_ns * (t.decode_sequences + t.prefill_sequences), 0.0)


def shares_text(ns: dict[str, float]) -> str:
    """memory 71 %, compute 20 %, ...: what is 1 % or more, the largest first."""
    total = sum(ns.values()) or 1.0
    parts = sorted(((value / total, kind) for kind, value in ns.items()), reverse=True)
    return ", ".join(f"{kind} {100 * share:.0f} %" for share, kind in parts if share >= 0.005)
