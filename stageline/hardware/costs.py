"""Constants of a device's kernels, by kind of operation and format, fitted to tables of measured kernels.

Bandwidth and FLOP shares are of the device's peaks. A share may exceed 1 where a cache answers or a peak is nominal.
Times are ns, bytes and elements those of one device.
"""

from typing import Protocol, TypeVar

import msgspec

from stageline.hardware.networks import CatalogStruct, MeasuredCollective
from stageline.model.formats import WeightFormat

WINDOW_TILE = 64  # keys beyond a window that a query is multiplied with: half a block of 128, on average


class GemmCost(CatalogStruct, frozen=True):
    """fixed + max(weights, FLOPs) + unhidden x min(weights, FLOPs) + inputs x input + outputs x output traffic.

    Traffic: 2 bytes per element, at the peak bandwidth; that of inputs holds their quantisation.
    """

    format: str
    fixed_ns: float
    bandwidth: float
    flops: float
    unhidden: float
    inputs: float
    outputs: float


class PrefillCost(CatalogStruct, frozen=True):
    """fixed + new KV + FLOPs + score_fs x pairs x heads + query x query traffic + depth_ns x pairs / new tokens.

    Scores take time of their own, whatever the width of a head. Depth: what one block of queries takes, one key block
    after the other. Traffic: queries in and outputs out, 2 bytes per element, at the peak bandwidth. A window's pairs
    include WINDOW_TILE more keys per query. `format`: of the KV cache.
    """

    format: str
    fixed_ns: float
    bandwidth: float
    flops: float
    score_fs: float
    query: float
    depth_ns: float


class DecodeCost(CatalogStruct, frozen=True):
    """fixed + KV + query x query traffic + span_ns x mean context + head_ns x sequences x KV heads.

    Traffic as in prefill. Tables repeat a call, so that the cache answers where it holds all KV: `cache_bandwidth` is
    its rate, which no emulation uses, because a step reads all other layers in between. `format`: of the KV cache.
    """

    format: str
    fixed_ns: float
    bandwidth: float
    cache_bandwidth: float
    query: float
    span_ns: float
    head_ns: float


class MoeCost(CatalogStruct, frozen=True):
    """fixed + max(distinct experts, FLOPs) + unhidden x min + activations x traffic; all routed experts of a layer.

    `traffic`: of all top_k copies of a token, on every rank that gets it: kernels keep rows for each, whoever
    multiplies it. A copy counts the experts' input and output and three intermediate widths, 2 bytes per element, at
    the peak bandwidth. A distinct expert takes its weights' reading + expert_ns.
    """

    format: str
    fixed_ns: float
    bandwidth: float
    flops: float
    unhidden: float
    activations: float
    expert_ns: float


class LinearCost(CatalogStruct, frozen=True):
    """fixed + head_ns x sequences x heads; prefill also + token_ns x tokens x heads + span_ns x mean length.

    Both hold the convolution and the recurrent or chunked kernel. `format`: kda or gated-delta.
    """

    format: str
    decode_fixed_ns: float
    decode_head_ns: float
    fixed_ns: float
    head_ns: float
    token_ns: float
    span_ns: float


class _Named(Protocol):
    @property
    def format(self) -> str: ...


T = TypeVar("T", bound=_Named)


def _first(rows: tuple[T, ...], *names: str) -> T | None:
    return next((row for name in names for row in rows if row.format == name), None)


class KernelCosts(CatalogStruct, frozen=True):
    """Constants of one device's kernels, and the collectives of one node."""

    name: str
    gemm: tuple[GemmCost, ...]
    prefill: tuple[PrefillCost, ...]
    decode: tuple[DecodeCost, ...]
    moe: tuple[MoeCost, ...] = ()
    linear: tuple[LinearCost, ...] = ()
    all_reduce: tuple[MeasuredCollective, ...] = ()
    reduce_scatter: tuple[MeasuredCollective, ...] = ()
    all_gather: tuple[MeasuredCollective, ...] = ()

    def gemm_of(self, name: str, fmt: WeightFormat) -> GemmCost | None:
        """A GEMM of this weight format, or else of the precision that it multiplies in, or of a wider one."""
        return _first(self.gemm, name, *PRECISIONS[fmt.precision])

    def moe_of(self, name: str, fmt: WeightFormat, *, w4a8: bool) -> MoeCost | None:
        """Experts of this weight format, or else as in `gemm_of`. `w4a8`: 4-bit weights may meet fp8 activations."""
        quantised = (f"{name}-w4a8",) if w4a8 else ()
        return _first(self.moe, *quantised, name, name.partition("-")[0], *PRECISIONS[fmt.precision])

    def prefill_of(self, kv_type: str) -> PrefillCost | None:
        """Prefill attention over this KV cache; bf16's for formats of 16 bits and more."""
        return _first(self.prefill, kv_type, "bf16")

    def decode_of(self, kv_type: str) -> DecodeCost | None:
        """Decode attention, likewise."""
        return _first(self.decode, kv_type, "bf16")

    def linear_of(self, kind: str) -> LinearCost | None:
        """Linear attention of this kind."""
        return _first(self.linear, kind)


PRECISIONS = {"fp4": ("nvfp4", "fp8", "bf16"), "fp8": ("fp8", "bf16"), "bf16": ("bf16",)}


def shares_in_range(costs: KernelCosts) -> str | None:
    """The first field that is out of range, as a path; None if all are in range."""
    for table in ("gemm", "prefill", "decode", "moe", "linear"):
        for i, row in enumerate(getattr(costs, table)):
            for field, value in msgspec.structs.asdict(row).items():
                low = 0.0 if field not in ("bandwidth", "flops", "cache_bandwidth") else 1e-3
                if field != "format" and not low <= value < 1e9:
                    return f"{table}[{i}].{field}"
    return None
