"""GEMM times of any shape from a kernel table, by number of tokens."""

import math
from collections.abc import Iterable

from stageline.cost.kernel_rows import Formula, KernelTable, Sourced, blended, bracket, weight
from stageline.errors import BadInput
from stageline.hardware.costs import GemmCost
from stageline.hardware.device import Device
from stageline.model.formats import WeightFormat

TABLE_FORMATS = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "nvfp4", "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4-w4a8",
}  # fmt: skip
LAUNCH_BOUND = 3.0  # times the bf16 row of the same shape: such a row times the launch by the host
UNKNOWN = GemmCost(format="", fixed_ns=4000.0, bandwidth=0.85, flops=0.7, unhidden=0.1, inputs=0.3, outputs=0.3)
Shape = tuple[int, int]  # n, k


class GemmShapes:
    """One format's GEMMs: times by (n, k) and tokens."""

    def __init__(self, name: str, times: dict[Shape, dict[int, float]]) -> None:
        self.name, self._times = name, times
        self._n, self._k = (sorted({shape[i] for shape in times}) for i in (0, 1))

    def at(self, n: int, k: int, device: Device, fmt: WeightFormat) -> Sourced:
        """Times of tokens x k by k x n; between the measured shapes around it if it is none of them."""
        if (n, k) in self._times:
            return Sourced(self._times[n, k], "")
        (n0, n1), (k0, k1) = bracket(self._n, n), bracket(self._k, k)
        fn, fk = weight(n0, n1, n), weight(k0, k1, k)
        corners: dict[Shape, float] = {}
        for shape, w in (
            ((n0, k0), (1 - fn) * (1 - fk)),
            ((n1, k0), fn * (1 - fk)),
            ((n0, k1), (1 - fn) * fk),
            ((n1, k1), fn * fk),
        ):
            if w > 0 and shape in self._times:
                corners[shape] = corners.get(shape, 0.0) + w
        if not corners:
            corners[min(self._times, key=lambda s: abs(math.log(s[0] / n)) + abs(math.log(s[1] / k)))] = 1.0
        cost = device.costs.gemm_of(self.name, device.peak_flops.precision(fmt.precision)) if device.costs else None
        parts = [(w, self._times[s], formula(*s, device, fmt, cost or UNKNOWN)) for s, w in corners.items()]
        outside = [
            f"{axis} {value:,} is outside the table's {axes[0]:,} to {axes[-1]:,}"
            for axis, value, axes in (("n", n, self._n), ("k", k, self._k))
            if not axes[0] <= value <= axes[-1]
        ]
        around = "between the shapes " if len(corners) > 1 else "scaled from "
        note = "; ".join(outside) or around + " and ".join(f"{a:,} x {b:,}" for a, b in corners)
        return Sourced(blended(parts, formula(n, k, device, fmt, cost or UNKNOWN)), note)


def formula(n: int, k: int, device: Device, fmt: WeightFormat, cost: GemmCost) -> Formula:
    """See GemmCost."""
    read = device.bandwidth_bytes_per_s / 1e9
    weights = n * k * float(fmt.bits) / 8 / read / cost.bandwidth
    per_token = 2 * n * k * 1e9 / device.peak_flops.at(fmt.precision) / cost.flops
    traffic = 2 * (cost.inputs * k + cost.outputs * n) / read

    def ns(tokens: int) -> float:
        work = per_token * tokens
        return cost.fixed_ns + max(work, weights) + cost.unhidden * min(work, weights) + traffic * tokens

    return ns


def gemm_shapes(tables: Iterable[KernelTable]) -> dict[str, GemmShapes]:
    """By format, from the first table that has valid rows of it. Raises BadInput."""
    found: dict[str, GemmShapes] = {}
    for table in tables:
        for name, times in _formats(table).items():
            if name not in found and times:
                found[name] = GemmShapes(name, times)
    return found


def _formats(table: KernelTable) -> dict[str, dict[Shape, dict[int, float]]]:
    """Times of a table without the rows that time the host's launch.

    Those are rows above three times the bf16 row of the same shape, and all of block FP8 in the tables of vLLM 0.24.0.
    """
    kept: dict[str, dict[Shape, dict[int, float]]] = {}
    columns = table.rows("gemm_dtype", "m", "n", "k", "latency")
    for number, (dtype, m, n, k, ms) in enumerate(columns):
        name = TABLE_FORMATS.get(str(dtype))
        if name is None:
            place = f"{table.place}: row {number}, column gemm_dtype"
            raise BadInput(place, dtype, "unknown format", f"known: {', '.join(TABLE_FORMATS)}")
        if name == "fp8-block" and "/0.24.0/" in table.place:
            continue
        times = kept.setdefault(name, {}).setdefault((int(n), int(k)), {})
        ns = table.latency_ns(number, ms)
        times[int(m)] = min(ns, times.get(int(m), math.inf))
    wide = kept.get("bf16", {})
    for name, shapes in kept.items():
        for shape, times in shapes.items() if name != "bf16" else ():
            limit = wide.get(shape, {})
            for m in [m for m, ns in times.items() if ns > LAUNCH_BOUND * limit.get(m, math.inf)]:
                del times[m]
        kept[name] = {shape: times for shape, times in shapes.items() if len(times) > 1}
    return kept
