"""Shares of a device's peaks and host times, fitted to measured requests; a plan's `info` names them."""

import msgspec

from stageline.cost.profile import Residual

EFFICIENCIES_FORMAT = "stageline-efficiencies/1"


class Constants(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a pattern search varies, as in `Efficiencies`."""

    flops_share: float
    bandwidth_share: float
    step_ns: int
    sequence_ns: int


class Efficiencies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fit for one model on one tensor group."""

    name: str
    model: str
    device: str
    flops_share: float  # of peak FLOP/s, 0 < share <= 1
    bandwidth_share: float  # of memory bandwidth, 0 < share <= 1
    step_ns: int  # host time per step
    sequence_ns: int = 0  # host time per step and sequence
    front_end_ns: int = 0  # per request, before the scheduler sees it
    tensor_parallel: int = 1
    least: Constants | None = None  # of those that fit almost as well
    most: Constants | None = None
    residuals: tuple[Residual, ...] = ()  # of the requests that were fitted
    backtest: tuple[Residual, ...] = ()  # of the other half, which was not
    source: str = ""
    format: str = EFFICIENCIES_FORMAT

    def constants(self) -> Constants:
        """What was searched."""
        return Constants(
            flops_share=self.flops_share,
            bandwidth_share=self.bandwidth_share,
            step_ns=self.step_ns,
            sequence_ns=self.sequence_ns,
        )
