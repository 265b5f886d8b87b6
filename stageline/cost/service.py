"""From a cost entry to a function of a microbatch's totals."""

from typing import Protocol

from stageline.cost.entries import Affine, CostEntry
from stageline.cost.load import Load


class ServiceModel(Protocol):
    """Service time of one visit. Pure; only + - * / on doubles, rounded half-even to ns once."""

    uses_draw: bool  # whether `draw` matters; callers skip the hash when it does not

    def service_ns(self, load: Load, draw: int = 0) -> int:
        """Nanoseconds (>= 1) for a microbatch of these totals; `draw` is a 64-bit counter-based random number."""
        ...


class AffineModel:
    """See `Affine`."""

    def __init__(self, entry: Affine) -> None:
        self._entry = entry
        self.uses_draw = entry.imbalance_ns > 0

    def service_ns(self, load: Load, draw: int = 0) -> int:
        """Exact integer arithmetic; nothing is rounded."""
        e = self._entry
        ns = e.base_ns + e.token_ns * load.tokens + e.sampled_ns * load.sampled
        ns += e.kv_token_ns * (load.decode_kv_tokens + load.prefill_kv_tokens)
        return ns + draw % (e.imbalance_ns + 1)


def compile_cost(entry: CostEntry) -> ServiceModel:
    """The model of one entry."""
    return AffineModel(entry)
