"""Compiles a cost entry into a service model: a function of a microbatch's totals."""

from typing import Protocol

from stageline.cost.entries import Affine, CostEntry, Roofline
from stageline.cost.lower_bound import lower_bound
from stageline.cost.measured import MeasuredModel
from stageline.cost.measured_entries import MeasuredCost
from stageline.cost.roofline import RooflineModel
from stageline.cost.totals import BatchTotals


class ServiceModel(Protocol):
    """The service time of one visit. Pure: only + - * / on doubles, rounded once, half to even, to whole ns."""

    uses_draw: bool  # whether the result depends on `draw`; if not, callers skip the hash

    def service_ns(self, totals: BatchTotals, draw: int = 0) -> int:
        """Nanoseconds (>= 1) for a microbatch of these totals; `draw` is a 64-bit counter-based random number."""
        ...


class AffineModel:
    """See `Affine`."""

    def __init__(self, entry: Affine) -> None:
        self._entry = entry
        self.uses_draw = entry.imbalance_ns > 0

    def service_ns(self, totals: BatchTotals, draw: int = 0) -> int:
        """At least 1, in exact integer arithmetic."""
        e = self._entry
        ns = e.base_ns + e.token_ns * (totals.decode_tokens + totals.prefill_tokens) + e.sampled_ns * totals.sampled
        ns += e.kv_token_ns * (totals.decode_kv_tokens + totals.prefill_kv_tokens)
        return (ns + draw % (e.imbalance_ns + 1)) or 1


def compile_cost(entry: CostEntry) -> ServiceModel:
    """The service model of an entry."""
    if isinstance(entry, Affine):
        return AffineModel(entry)
    return MeasuredModel(entry) if isinstance(entry, MeasuredCost) else RooflineModel(entry)


SMALLEST = (
    BatchTotals(decode_sequences=1, decode_tokens=1, decode_kv_tokens=1, decode_pairs=1),
    BatchTotals(decode_sequences=1, decode_tokens=1, decode_kv_tokens=1, decode_pairs=1, sampled=1),
    BatchTotals(prefill_sequences=1, prefill_tokens=1, prefill_kv_tokens=1, prefill_pairs=1),
)


def min_service_ns(entry: CostEntry) -> int:
    """A lower bound of the service time of every microbatch.

    Without rings and drafters, without launches where some graph was captured, and with the `lower_bound` of measured
    times, it is monotone in every total and in the draw, and every microbatch has at least the totals of one of
    SMALLEST.
    """
    model = compile_cost(lower_bound(entry) if isinstance(entry, Roofline) else entry)
    return min(model.service_ns(totals) for totals in SMALLEST)
