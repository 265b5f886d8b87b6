"""How the axes of parallelism are nested on the devices, and thus which axes get the scale-up links.

An order names the axes from the innermost: neighbours on the first axis are neighbouring devices, neighbours on the
next one are as far apart as the first axis is long, and so on. Device d belongs to domain d // (devices of a domain);
traffic that leaves a domain takes the scale-out link. The planner chooses the order with the shortest trip of a decode
step of the nominal microbatch plus a full prefill chunk; traffic that hides behind work adds nothing to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations
from math import prod
from typing import Literal

import msgspec

from stageline.cost.entries import CostEntry
from stageline.cost.service import compile_cost
from stageline.cost.topology import domain_devices, joined, ranks_in_domain
from stageline.cost.totals import BatchTotals
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.cost_entry import cost_entry
from stageline.plan.links import leaves_domain, links
from stageline.plan.options import AXES, Axis, PlanOptions, Strides
from stageline.plan.placement import LayerRun
from stageline.plan.timing import serialisation_ns

Sizes = Mapping[Axis, int]
Where = Literal["scale-up", "scale-out", "both"]


class AxisRow(msgspec.Struct, frozen=True, kw_only=True):
    """The link of one axis, and what the other link would cost."""

    axis: Axis
    ranks: int
    stride: int  # devices from one rank to the next
    link: Where  # that its traffic takes
    elsewhere_ns: int | None  # change of `trip_ns` on the other link; None: no order gives the axis that link
    trip_ns: int  # of a decode step and a prefill chunk, under the chosen order


def prefill_totals(tokens: int, context_tokens: int, ranks: int = 1) -> BatchTotals:
    """The last chunks, of at most `tokens` together, of a prompt of `context_tokens` on each of `ranks` ranks."""
    new = min(-(-tokens // ranks), context_tokens)
    pairs = new * (context_tokens - new) + new * (new + 1) // 2
    return BatchTotals(
        prefill_sequences=ranks,
        prefill_tokens=ranks * new,
        prefill_kv_tokens=ranks * context_tokens,
        prefill_pairs=ranks * pairs,
        sampled=ranks,
    )


def sizes_of(options: PlanOptions, stages: int) -> dict[Axis, int]:
    """Ranks of every axis; `ep` counts attention replicas, because the tensor ranks of each hold experts too."""
    group = options.group
    found: dict[Axis, int] = {"tp": group.tensor, "ep": group.attention_replicas, "cp": group.context}
    return found | {"pp": stages, "dp": options.replicas}


def strides_of(order: Sequence[Axis], sizes: Sizes) -> Strides:
    """Devices between neighbours on every axis when the axes are nested in this order; axes left out come last."""
    found, stride = dict.fromkeys(AXES, 1), 1
    for axis in (*order, *(a for a in AXES if a not in order)):
        found[axis] = stride
        stride *= sizes[axis]
    return Strides(**found)


def orders(sizes: Sizes) -> Iterator[tuple[Axis, ...]]:
    """All orders of the axes that have more than one rank; the default order (AXES) first."""
    return permutations([axis for axis in AXES if sizes[axis] > 1])


class AxisPlanner:
    """Prices one plan's route under every order of the axes, and chooses among them."""

    def __init__(
        self,
        spec: ModelSpec,
        device: Device,
        options: PlanOptions,
        runs: Sequence[LayerRun],
        totals: Sequence[BatchTotals],
    ) -> None:
        self.sizes = sizes_of(options, 1 + max(run.stage for run in runs))
        self._spec, self._device, self._options, self._runs = spec, device, options, runs
        self._totals = totals
        self._domain = domain_devices(device)
        self._trips: dict[tuple[object, ...], int] = {}

    def choose(self) -> tuple[Strides, tuple[AxisRow, ...]]:
        """The requested order, or the one with the shortest trip (of equal ones the first), and a row per axis."""
        every = [strides_of(order, self.sizes) for order in orders(self.sizes)]
        asked = self._options.axes
        best = strides_of(asked, self.sizes) if asked else min(every, key=self.trip_ns)
        rows = [self._row(axis, best, every) for axis in AXES if self.sizes[axis] > 1]
        return best, tuple(sorted(rows, key=lambda row: row.stride))

    def trip_ns(self, strides: Strides) -> int:
        """The time of all totals through all visits and links; equal domains and hops are priced once."""
        key = self._near(strides)
        if key not in self._trips:
            self._trips[key] = self._trip_ns(self._with_strides(strides))
        return self._trips[key]

    def link(self, axis: Axis, strides: Strides) -> Where:
        """The link of an axis. Replicas (dp) have no traffic; theirs is the link that would join them."""
        tensor, outer, everyone, hops = self._near(strides)
        if axis == "pp":
            return "both" if len(set(hops)) > 1 else "scale-out" if hops[0] else "scale-up"
        copies = range(0, self.sizes["dp"] * strides.dp, strides.dp)
        near = {"tp": tensor, "cp": outer, "ep": everyone, "dp": ranks_in_domain(self._domain, copies, (0,))}[axis]
        ranks = self.sizes["tp"] * self.sizes["ep"] if axis == "ep" else self.sizes[axis]
        return "scale-up" if near == ranks and self._device.scale_up else "scale-out"

    def _row(self, axis: Axis, best: Strides, every: Sequence[Strides]) -> AxisRow:
        link, here = self.link(axis, best), self.trip_ns(best)
        if self._device.scale_up is None:
            other = None
        elif link == "scale-out":
            inside = [self.trip_ns(s) for s in every if self.link(axis, s) == "scale-up"]
            other = min(inside, default=None)
        else:
            far = self._domain * prod(self.sizes.values())
            other = self.trip_ns(best._replace(**{axis: far}))
        elsewhere = None if other is None else other - here
        stride = int(getattr(best, axis))
        return AxisRow(
            axis=axis, ranks=self.sizes[axis], stride=stride, link=link, elsewhere_ns=elsewhere, trip_ns=here
        )

    def _with_strides(self, strides: Strides) -> PlanOptions:
        return msgspec.structs.replace(self._options, strides=strides, expert_imbalance=0.0)

    def _near(self, strides: Strides) -> tuple[int, int, int, tuple[bool, ...]]:
        """What decides the price: how many tensor, outer and all ranks share a domain, and which hops leave theirs."""
        options = self._with_strides(strides)
        group, domain = options.group, self._domain
        hops = tuple(leaves_domain(self._device, options, a.stage, b.stage) for a, b in pairwise(self._runs))
        return (
            ranks_in_domain(domain, group.tensor_devices, group.outer_devices),
            ranks_in_domain(domain, group.outer_devices, group.tensor_devices),
            ranks_in_domain(domain, joined(group.outer_devices, group.tensor_devices), (0,)),
            hops,
        )

    def _entry(self, run: LayerRun, options: PlanOptions) -> CostEntry:
        return cost_entry(self._spec, run.layers, options.device_of(run.stage, self._device), options)

    def _trip_ns(self, options: PlanOptions) -> int:
        route_links = links(self._spec, self._device, options, self._runs)
        entries = [self._entry(run, options) for run in self._runs]
        models = {entry: compile_cost(entry) for entry in entries}
        total = 0
        for totals in self._totals:
            total += sum(models[entry].service_ns(totals) for entry in entries)
            total += sum(link.latency_ns + serialisation_ns(link, totals.tokens) for link in route_links)
        return total
