"""Flags of what is measured in a run: warm-up, window and price."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.groups import MEASURE
from stageline.cli.numbers import DECIMAL
from stageline.report.measure import MeasureWindow, parse_measure


@Parameter(name="*", group=MEASURE)
@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFlags:
    """Where rates are measured. Latencies are those of all requests."""

    warmup: Annotated[
        str | None, Parameter(help="Number of requests (50) or time (30s) at the start to leave out of the rates.")
    ] = None
    measure_window: Annotated[
        str | None,
        Parameter(
            help="Time in which rates are measured: auto (from when the system is stationary), all, 60s (after the "
            "warm-up) or 30s..90s; default: until the last arrival."
        ),
    ] = None

    def window(self) -> MeasureWindow:
        """The window. Raises BadInput or UsageError."""
        return parse_measure(self.warmup, self.measure_window)


@Parameter(name="*", group=MEASURE)
@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureFlags(WindowFlags):
    """The same, and what a device costs."""

    price: Annotated[
        float | None, DECIMAL, Parameter(help="Price of one device for an hour, for the cost of tokens.")
    ] = None
