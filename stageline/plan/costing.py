"""The cost entry of a visit: folded from the specification, or from a profile where one was named."""

from collections.abc import Sequence

from stageline.cost.entries import CostEntry
from stageline.cost.fold import fold
from stageline.cost.profile import fold_profile
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.options import PlanOptions


def cost_entry(spec: ModelSpec, layers: Sequence[int], device: Device, options: PlanOptions) -> CostEntry:
    """Of a visit to these layers; the head is paid for with the last layer."""
    last = len(spec.layers) - 1
    if options.profile:
        return fold_profile(options.profile, layers, last)
    return fold(spec, layers, device, options.group, layers[-1] == last, options.expert_imbalance, options.host)
