"""Stageline: an exact emulator of distributed LLM serving clusters.

For programs and notebooks, docs/python.md:

    plan_model   a model and a device become a plan
    plan_fleet   a fleet file becomes pools of replicas
    run          a plan or a fleet and a workload through emulated time
    read_plan    a plan file, and read_run a run directory
    compare      runs side by side
    search       every way to divide some devices, each run on a workload
    sweep        one plan over values of settings or of the load, or up to an objective
    tune         every setting that can move what binds in a run, each tried on its workload
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stageline.api.fleets import FleetPlan
    from stageline.api.placement_limits import PlacementLimits
    from stageline.api.planning import ModelPlan, plan_model, read_plan
    from stageline.api.results import RunResult, compare, read_run
    from stageline.api.running import run
    from stageline.api.searching import SearchResult, search
    from stageline.api.sweeping import SweepResult, sweep
    from stageline.api.tuning import tune
    from stageline.cli.fleet import plan_fleet
    from stageline.engine.settings import Scheduling
    from stageline.errors import StagelineError
    from stageline.report.tuned import TuneResult

__version__ = "0.1.0"
__all__ = [
    "FleetPlan",
    "ModelPlan",
    "PlacementLimits",
    "RunResult",
    "Scheduling",
    "SearchResult",
    "StagelineError",
    "SweepResult",
    "TuneResult",
    "compare",
    "plan_fleet",
    "plan_model",
    "read_plan",
    "read_run",
    "run",
    "search",
    "sweep",
    "tune",
]
_HOMES = {  # loaded when asked for, so that a server does not load what only a notebook needs
    "stageline.api.fleets": ("FleetPlan",),
    "stageline.cli.fleet": ("plan_fleet",),
    "stageline.api.placement_limits": ("PlacementLimits",),
    "stageline.api.planning": ("ModelPlan", "plan_model", "read_plan"),
    "stageline.api.results": ("RunResult", "compare", "read_run"),
    "stageline.api.running": ("run",),
    "stageline.api.searching": ("SearchResult", "search"),
    "stageline.api.sweeping": ("SweepResult", "sweep"),
    "stageline.api.tuning": ("tune",),
    "stageline.engine.settings": ("Scheduling",),
    "stageline.errors": ("StagelineError",),
    "stageline.report.tuned": ("TuneResult",),
}


def __getattr__(name: str) -> object:
    """A public name, from where it lives (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(_import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
