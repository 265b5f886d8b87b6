"""Times of a layer's routed experts from a kernel table, by number of tokens."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from stageline.cost.expert_formats import expert_formats
from stageline.cost.kernel_rows import Formula, KernelTable, Sourced, blended
from stageline.cost.tables import distinct_experts
from stageline.hardware.costs import MoeCost
from stageline.hardware.device import Device
from stageline.model.formats import WeightFormat

UNKNOWN = MoeCost(format="", fixed_ns=30_000.0, bandwidth=0.8, flops=0.5, unhidden=0.5, activations=0.5, expert_ns=50.0)


class ExpertShape(NamedTuple):
    """Experts of a layer, and the ranks that shard or spread them."""

    hidden: int
    width: int
    top_k: int
    experts: int
    tp: int
    ep: int

    def distance(self, other: "ExpertShape") -> float:
        """How unlike two shapes are."""
        mine = (self.hidden, self.width / self.tp, self.top_k, self.experts, self.ep)
        theirs = (other.hidden, other.width / other.tp, other.top_k, other.experts, other.ep)
        return sum(abs(math.log(a / b)) for a, b in zip(mine, theirs, strict=True))

    def text(self) -> str:
        """As in a note."""
        return f"{self.experts} experts of {self.hidden} x {self.width}, top {self.top_k}, tp {self.tp}, ep {self.ep}"


class ExpertShapes:
    """Times by shape and kernel, of one format and one distribution of tokens over experts."""

    def __init__(self, times: dict[ExpertShape, dict[str, dict[int, float]]]) -> None:
        self._times = times

    def at(self, shape: ExpertShape, device: Device, fmt: WeightFormat, cost: MoeCost | None) -> Sourced:
        """Times of the shape's fastest kernel, or of the most similar shape, scaled by the formula."""
        near = min(self._times, key=shape.distance)
        kernels = self._times[near]
        shared = set.intersection(*(set(times) for times in kernels.values()))
        name = min(kernels, key=lambda k: (sum(math.log(kernels[k][t]) for t in shared), k))
        times, note = kernels[name], "" if len(kernels) == 1 else f"kernel {name}, the fastest of {len(kernels)}"
        if near == shape:
            return Sourced(times, note)
        formulas = [formula(s, device, fmt, cost or UNKNOWN) for s in (near, shape)]
        return Sourced(blended([(1.0, times, formulas[0])], formulas[1]), f"scaled from {near.text()}")


def formula(shape: ExpertShape, device: Device, fmt: WeightFormat, cost: MoeCost) -> Formula:
    """See MoeCost."""
    read, peak = device.bandwidth_bytes_per_s / 1e9, device.peak_flops.at(fmt.precision) / 1e9
    width = shape.width / shape.tp
    one = 3 * shape.hidden * width
    distinct = distinct_experts(shape.experts, shape.top_k)
    copies = shape.top_k / shape.ep

    def ns(tokens: int) -> float:
        reading = distinct[min(tokens, len(distinct) - 1)] / shape.ep
        reading *= one * float(fmt.bits) / 8 / read / cost.bandwidth + cost.expert_ns
        work = 2 * one * copies * tokens / peak / cost.flops
        traffic = shape.top_k * tokens * (2 * shape.hidden + 3 * width) * 2 / read
        return cost.fixed_ns + max(work, reading) + cost.unhidden * min(work, reading) + cost.activations * traffic

    return ns


def expert_shapes(tables: Iterable[KernelTable], distribution: str) -> dict[str, ExpertShapes]:
    """By format, from the first table that has it. Raises BadInput."""
    names = ("moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
    found: dict[str, ExpertShapes] = {}
    for table in tables:
        here: dict[str, dict[ExpertShape, dict[str, dict[int, float]]]] = {}
        kinds = expert_formats((str(a), str(b)) for a, b in table.rows("moe_dtype", "kernel_source"))
        rows = table.rows(*names, "moe_ep_size", "distribution", "kernel_source", "latency")
        for number, (dtype, tokens, *shape, spread, source, ms) in enumerate(rows):
            key = ExpertShape(*(int(x) for x in shape))
            for name in kinds[str(dtype), str(source)] if spread == distribution else ():
                times = here.setdefault(name, {}).setdefault(key, {}).setdefault(str(source), {})
                times[int(tokens)] = min(table.latency_ns(number, ms), times.get(int(tokens), math.inf))
        for name, shapes in here.items():
            found.setdefault(name, ExpertShapes(shapes))
    return found
