"""A Roofline entry that takes no longer than another one and is monotone, for lower bounds of service times.

Measured times may fall where a kernel changes its tiles. Each is replaced by the least time from there on.
"""

from typing import TypeVar

import msgspec

from stageline.cost.entries import FullAttention, LayerGroup, LinearAttention, Phase, Roofline
from stageline.cost.measured_entries import Curve, Surface

ROUNDING = 1 - 1e-9  # interpolation between two times may fall below both by the last bit

Attention = TypeVar("Attention", FullAttention, LinearAttention)


def lower_bound(entry: Roofline) -> Roofline:
    """Without rings, drafter, and launches where some graph was captured; falling times flattened from below."""
    head, graphs = entry.head, entry.graphs
    if graphs and graphs.sizes:
        graphs = msgspec.structs.replace(graphs, eager_ns=0.0)
    if head and head.curve:
        head = msgspec.structs.replace(head, curve=_curve(head.curve))
    return msgspec.structs.replace(
        entry, groups=tuple(_group(group) for group in entry.groups), head=head, graphs=graphs
    )


def _group(group: LayerGroup) -> LayerGroup:
    attention, linear, experts = group.attention, group.linear, group.experts
    if experts and experts.curve:
        experts = msgspec.structs.replace(experts, curve=_curve(experts.curve))
    if attention:
        attention = _phases(msgspec.structs.replace(attention, ring=None))
    return msgspec.structs.replace(
        group,
        attention=attention,
        experts=experts,
        linear=linear and _phases(linear),
        work=tuple(_curve(c) for c in group.work) if group.work else msgspec.UNSET,
        collectives=tuple(
            msgspec.structs.replace(c, curve=_curve(c.curve)) if c.curve else c for c in group.collectives
        ),
    )


def _phases(attention: Attention) -> Attention:
    """Of decode and prefill."""
    decode, prefill = (_phase(p) if p else p for p in (attention.decode, attention.prefill))
    return msgspec.structs.replace(attention, decode=decode, prefill=prefill)


def _phase(phase: Phase) -> Phase:
    return msgspec.structs.replace(phase, surface=_surface(phase.surface)) if phase.surface else phase


def _curve(curve: Curve) -> Curve:
    return msgspec.structs.replace(curve, ns=tuple(ns * ROUNDING for ns in _least_from(list(curve.ns))))


def _surface(surface: Surface) -> Surface:
    width = len(surface.columns)
    rows = [_least_from(list(surface.ns[i : i + width])) for i in range(0, len(surface.ns), width)]
    for lower, upper in zip(reversed(rows[:-1]), reversed(rows[1:]), strict=True):
        lower[:] = [min(a, b) for a, b in zip(lower, upper, strict=True)]
    return msgspec.structs.replace(surface, ns=tuple(ns * ROUNDING for row in rows for ns in row))


def _least_from(values: list[float]) -> list[float]:
    for i in range(len(values) - 2, -1, -1):
        values[i] = min(values[i], values[i + 1])
    return values
