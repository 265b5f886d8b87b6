"""Shares of a device's peaks and host time per step, fitted to measured requests; a plan's `info` names them."""

import msgspec

from stageline.cost.profile import Residual

EFFICIENCIES_FORMAT = "stageline-efficiencies/1"


class Efficiencies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fit for one model on one tensor group."""

    name: str
    model: str
    device: str
    flops_share: float  # of peak FLOP/s, 0 < share <= 1
    bandwidth_share: float  # of memory bandwidth, 0 < share <= 1
    step_ns: int  # host time per step
    tensor_parallel: int = 1
    residuals: tuple[Residual, ...] = ()
    source: str = ""
    format: str = EFFICIENCIES_FORMAT
