"""Fitted efficiencies in the place of the catalogue's."""

import msgspec

from stageline.cost.profile import check_measured_on
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.options import PlanOptions


def with_efficiencies(spec: ModelSpec, device: Device, options: PlanOptions) -> tuple[Device, PlanOptions]:
    """The device with the shares that were fitted, and options with the host's time per step. Twice is once.

    Raises UsageError where they were fitted to another model, device or tensor group.
    """
    fit = options.efficiencies
    if fit is None:
        return device, options
    check_measured_on(fit, spec, device.name, options.tensor_parallel)
    share = msgspec.structs.replace(device.share, flops=fit.flops_share, bandwidth=fit.bandwidth_share)
    host = options.host._replace(step_ns=float(fit.step_ns))
    return msgspec.structs.replace(device, share=share), msgspec.structs.replace(options, host=host)
