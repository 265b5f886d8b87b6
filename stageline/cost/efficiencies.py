"""What a device reaches of its specification and what the host adds, fitted to measured requests; plans name it."""

import msgspec

from stageline.cost.profile import Residual

EFFICIENCIES_FORMAT = "stageline-efficiencies/1"


class Efficiencies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shares of peak FLOP/s and of memory bandwidth, and host time per step, of one model on one tensor group."""

    name: str
    model: str
    device: str
    flops_share: float  # 0 < share <= 1
    bandwidth_share: float  # 0 < share <= 1
    step_ns: int
    tensor_parallel: int = 1
    residuals: tuple[Residual, ...] = ()
    source: str = ""
    format: str = EFFICIENCIES_FORMAT
