"""The arguments of a run that can be given in several forms, checked and brought into one."""

import os
import re
from typing import cast

from stageline.api.arguments import one_of, require, shown
from stageline.api.execution import Cluster
from stageline.api.placement_limits import check_price
from stageline.api.scheduling import PRESETS
from stageline.errors import UsageError
from stageline.report.measure import MeasureWindow, parse_measure
from stageline.report.slo import Slo, parse_slo
from stageline.workload import DescribedWorkload

_ADDRESS = re.compile(r"(?:grpcs?://)?(?:[^\s:/\[\]]+|\[[0-9a-fA-F:.%\w]+\]):(\d{1,5})")
MAX_PORT = 65535
_OPENED = ("take", "next_arrival_ns", "finished", "description", "counts")  # what tells an opened workload


def cluster_named(value: object) -> Cluster | None:
    """A cluster, or the HOST:PORT of its router. Raises UsageError."""
    if value is None or isinstance(value, Cluster):
        return value
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 1 <= int(found[1]) <= MAX_PORT:
        reason = "give the HOST:PORT of the router's gRPC, such as localhost:50051, or a Cluster"
        raise UsageError(f"run: cluster={shown(value)}: {reason}")
    return Cluster(address=cast(str, value))


def workload_named(value: object) -> str | DescribedWorkload:
    """A text or the path of a trace, or a workload that is open. Raises UsageError."""
    if isinstance(value, (str, os.PathLike)):
        return str(require("run: workload", value, str, os.PathLike))
    if all(hasattr(value, name) for name in _OPENED):
        return cast(DescribedWorkload, value)
    reason = "give a trace file, or a text such as poisson:rate=4,input=1024,output=128"
    raise UsageError(f"run: workload={shown(value)}: {reason}")


def objective_named(value: object) -> Slo | None:
    """An objective, or its text. Raises UsageError."""
    if value is None or isinstance(value, Slo):
        return value
    if not isinstance(value, str):
        raise UsageError(f"run: slo={shown(value)}: give a text such as ttft=2s,tpot=50ms")
    return parse_slo(value)


def measure_named(warmup: object, window: object, price: object) -> tuple[MeasureWindow, float | None]:
    """The measurement window, and the price of a device's hour. Raises BadInput and UsageError."""
    texts = [require(f"run: {n}", v, str, type(None)) for n, v in (("warmup", warmup), ("measure_window", window))]
    given = require("run: price", price, int, float, type(None))
    return parse_measure(*texts), None if given is None else check_price(float(given))


def engine_named(serving_engine: object, preset: object) -> str | None:
    """The serving engine that replaces the plan's; `preset` is an older name. Raises UsageError for two of them."""
    if preset is None:
        return cast(str | None, require("run: serving_engine", serving_engine, str, type(None)))
    if not isinstance(preset, str) or preset not in PRESETS:
        raise UsageError(
            f"run: preset={shown(preset)}: give {one_of([repr(name) for name in PRESETS])}, or serving_engine instead"
        )
    if serving_engine is not None:
        raise UsageError(f"run: preset={preset!r} names a serving engine, too: give serving_engine alone")
    return PRESETS[preset]
