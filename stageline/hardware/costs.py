"""Constants of a device's kernels, by kind of operation and format, fitted to tables of measured kernels.

Bandwidth and FLOP shares are of the device's peaks. A share may exceed 1 where a cache answers or a peak is nominal.
Times are ns, bytes and elements those of one device.
"""

from typing import Protocol, TypeVar

import msgspec

from stageline.hardware.networks import CatalogStruct, MeasuredCollective
from stageline.model.formats import Precision

WINDOW_TILE = 64  # keys beyond a window that a query is multiplied with: half a block of 128, on average
QUERY_TILE = 128  # queries of a block of prefill attention


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
    """fixed + new KV + FLOPs + scores + query x query traffic + depth_ns x pairs / new tokens + block_ns x blocks.

    Scores: the device's `score_fs` x pairs x heads. Depth: what one block of queries takes, one key block after the
    other. Traffic: queries in and outputs out, 2 bytes per element, at the peak bandwidth; none if the device's cache
    holds them. Blocks: tokens / QUERY_TILE + half a block per sequence, times heads. A window's pairs include
    WINDOW_TILE more keys per query. `format`: of the KV cache.
    """

    format: str
    fixed_ns: float
    bandwidth: float
    flops: float
    query: float
    depth_ns: float
    block_ns: float


class DecodeCost(CatalogStruct, frozen=True):
    """fixed + KV + query x query traffic + span_ns x mean context + head_ns x sequences x KV heads.

    Traffic as in prefill. Tables repeat a call, so that the cache answers where it holds all KV: `cache_bandwidth` is
    its rate, which no emulation uses, because a step reads all other layers in between. `format`: of the KV cache.

    `heads_apart`: under a window every query head counts as a KV head. FlashAttention 2 lets the query heads of a KV
    head share a block only without a window (`seqlenq_ngroups_swapped` in its flash_api.cpp).
    """

    format: str
    fixed_ns: float
    bandwidth: float
    cache_bandwidth: float
    query: float
    span_ns: float
    head_ns: float
    heads_apart: bool = False  # under a window each query head reads KV alone, as in FlashAttention 2


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
    score_fs: float  # one exponential of the softmax, on all units of the device that compute it
    cache_bytes: int  # of the last cache before memory
    gemm: tuple[GemmCost, ...]
    prefill: tuple[PrefillCost, ...]
    decode: tuple[DecodeCost, ...]
    moe: tuple[MoeCost, ...] = ()
    linear: tuple[LinearCost, ...] = ()
    all_reduce: tuple[MeasuredCollective, ...] = ()
    reduce_scatter: tuple[MeasuredCollective, ...] = ()
    all_gather: tuple[MeasuredCollective, ...] = ()

    def gemm_of(self, name: str, precision: Precision) -> GemmCost | None:
        """A GEMM of this weight format, or else of the precision that it multiplies in, or of a wider one."""
        return _first(self.gemm, *gemm_names(name, precision))

    def moe_of(self, name: str, precision: Precision, *, w4a8: bool) -> MoeCost | None:
        """Experts of this weight format, or else of the most similar one; see `expert_names`."""
        return _first(self.moe, *expert_names(name, precision, w4a8=w4a8))

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
MARLIN = ("mxfp4", "int4")  # 4-bit weights that one kernel multiplies in bf16, whatever their scales


def gemm_names(name: str, precision: Precision) -> tuple[str, ...]:
    """Formats of GEMMs in order of likeness to `name`, which the device multiplies in `precision`."""
    return (name, *PRECISIONS[precision])


def expert_names(name: str, precision: Precision, *, w4a8: bool) -> tuple[str, ...]:
    """Formats of experts in order of likeness to `name`, which the device multiplies in `precision`.

    `w4a8`: 4-bit weights may meet fp8 activations. 4-bit weights that are multiplied in bf16 run in Marlin, as vLLM
    does it with NVFP4 on devices without FP4 units (its docs: "weight-only FP4 compression").
    """
    family = name.partition("-")[0]
    marlin = MARLIN if precision == "bf16" and family in ("nvfp4", *MARLIN) else ()
    return (*((f"{name}-w4a8",) if w4a8 else ()), name, family, *marlin, *PRECISIONS[precision])


def shares_in_range(costs: KernelCosts) -> str | None:
    """The first field that is out of range, as a path; None if all are in range."""
    for table in ("gemm", "prefill", "decode", "moe", "linear"):
        for i, row in enumerate(getattr(costs, table)):
            for field, value in msgspec.structs.asdict(row).items():
                low = 0.0 if field not in ("bandwidth", "flops", "cache_bandwidth") else 1e-3
                if field != "format" and not low <= value < 1e9:
                    return f"{table}[{i}].{field}"
    return None
