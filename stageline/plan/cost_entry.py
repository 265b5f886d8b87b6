"""The cost entry of a visit: from the device's specification, or from a profile if the options name one."""

from collections.abc import Sequence

import msgspec

from stageline.cost.entries import CostEntry
from stageline.cost.kernel_profile import KernelProfile, with_tables
from stageline.cost.profile import measured_entry
from stageline.cost.roofline_entry import roofline_entry
from stageline.cost.sampling import with_sampling
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.options import PlanOptions


def cost_entry(spec: ModelSpec, layers: Sequence[int], device: Device, options: PlanOptions) -> CostEntry:
    """The cost entry of a visit to these layers.

    The last layer's includes head, sampling and drafter, the first layer's the serving engine's own host time, unless
    another was given.
    """
    last, host, profile = len(spec.layers) - 1, options.host, options.profile
    if layers[0] == 0 and options.engine_sequence_ns and not (host.floor_ns or host.sequence_ns or host.step_ns):
        host = host._replace(sequence_ns=options.engine_sequence_ns, hidden=bool(options.async_scheduling))
    if profile and not isinstance(profile, KernelProfile):
        return with_sampling(measured_entry(profile, layers, last), options.sampling)
    entry = roofline_entry(spec, layers, device, options.group, layers[-1] == last, options.expert_imbalance, host)
    if isinstance(profile, KernelProfile):
        entry = with_tables(entry, profile, spec, layers)
    entry = with_sampling(entry, options.sampling, options.group.attention_replicas)
    drafter = options.draft.cost(device, options.group) if options.draft and layers[-1] == last else None
    return msgspec.structs.replace(entry, drafter=drafter) if drafter else entry
