"""Replaces the catalogue's efficiencies by fitted ones."""

import msgspec

from stageline.cost.profile import check_measured_on
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.options import PlanOptions


def with_efficiencies(spec: ModelSpec, device: Device, options: PlanOptions) -> tuple[Device, PlanOptions]:
    """The device with the fitted shares in place of its kernel constants, and options with the fitted host time.

    Idempotent.

    Raises UsageError if they were fitted to another model, device or tensor group.
    """
    fit = options.efficiencies
    if fit is None:
        return device, options
    check_measured_on(fit, spec, device.name, options.tensor_parallel)
    share = msgspec.structs.replace(device.share, flops=fit.flops_share, bandwidth=fit.bandwidth_share)
    host = options.host._replace(step_ns=float(fit.step_ns), sequence_ns=float(fit.sequence_ns))
    return msgspec.structs.replace(device, share=share, costs=None), msgspec.structs.replace(options, host=host)
