"""What sampling takes on the devices beside the LM head: penalties, a sort of the vocabulary for top-p, the draw.

A few dozen small kernels per step and work per sampled row, in proportion to the vocabulary. Engines run it outside of
CUDA graphs. Greedy sampling takes next to nothing (LLMServingSim, RTX PRO 6000, Llama-3.1-8B: 64 us for 128 rows).
"""

from typing import NamedTuple, TypeVar

import msgspec

from stageline.cost.entries import LmHead, Roofline
from stageline.cost.measured_entries import Curve, MeasuredCost

Entry = TypeVar("Entry", Roofline, MeasuredCost)


class Sampling(NamedTuple):
    """step_ns + row_ns x sampled rows, of a step that samples."""

    step_ns: float = 0.0
    row_ns: float = 0.0

    def curve(self) -> Curve:
        """By sampled rows."""
        return Curve(at=(1, 2), ns=(self.step_ns + self.row_ns, self.step_ns + 2 * self.row_ns))

    def added(self, curve: Curve) -> Curve:
        """To measured times by rows; a curve is straight right of its last point, and so is this."""
        ns = (t + self.step_ns + self.row_ns * rows for rows, t in zip(curve.at, curve.ns, strict=True))
        return Curve(at=curve.at, ns=tuple(ns))


def with_sampling(entry: Entry, sampling: Sampling, replicas: int = 1) -> Entry:
    """An entry whose head samples; `replicas` of attention split the rows. One without a head stays as it is."""
    sampling = Sampling(sampling.step_ns, sampling.row_ns / replicas)
    if not any(sampling):
        return entry
    if isinstance(entry, MeasuredCost):
        return msgspec.structs.replace(entry, sampled=sampling.added(entry.sampled)) if entry.sampled else entry
    return msgspec.structs.replace(entry, head=_head(entry.head, sampling)) if entry.head else entry


def _head(head: LmHead, sampling: Sampling) -> LmHead:
    curve = sampling.added(head.curve) if head.curve else sampling.curve()
    return msgspec.structs.replace(head, curve=curve)
