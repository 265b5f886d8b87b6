"""The public surface: which names there are, what their keywords are, and that a server does not pay for them."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
import pytest

import stageline
from stageline.api.keywords import DesignKeywords, PlanKeywords, SchedulingKeywords, ShapeKeywords
from stageline.engine.settings import Scheduling
from stageline.plan.options import PlanOptions

FUNCTIONS = {
    "plan_model": ["model", "device", "catalog", "keywords"],
    "plan_fleet": ["path"],
    "run": [
        "plan", "workload", "seed", "requests", "rate_scale", "skip_bad_rows", "sort", "slo", "warmup",
        "measure_window", "price", "serving_engine", "preset", "output", "events", "paranoid", "keep_requests",
        "cluster", "scheduling",
    ],
    "read_plan": ["path"],
    "read_run": ["directory"],
    "compare": ["runs"],
    "search": [
        "models", "device_names", "devices", "workload", "slo", "microbatches", "vary", "max_context_parallel",
        "requests", "rate_scale", "seed", "scheduling", "warmup", "measure_window", "price", "limits", "every_count",
        "exhaustive", "headroom",
        "survive_loss", "disaggregate",
        "jobs", "dask_scheduler", "resume", "catalog", "design",
    ],
    "sweep": [
        "plan", "workload", "over", "until", "slo", "requests", "rate_scale", "seed", "serving_engine", "jobs",
        "scheduling",
    ],
    "tune": ["directory", "objective", "slo", "budget", "jobs", "save", "trust"],
}  # fmt: skip
VALUES = {
    "FleetPlan",
    "ModelPlan",
    "PlacementLimits",
    "RunResult",
    "Scheduling",
    "SearchResult",
    "StagelineError",
    "SweepResult",
    "TuneResult",
}


def test_the_names() -> None:
    assert set(stageline.__all__) == FUNCTIONS.keys() | VALUES
    assert stageline.__all__ == sorted(stageline.__all__)
    assert set(stageline.__all__) <= set(dir(stageline))
    assert all(getattr(stageline, name) is getattr(stageline, name) for name in stageline.__all__)
    with pytest.raises(AttributeError, match="no attribute 'pln_model'"):
        stageline.pln_model  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name: str) -> None:
    function: Callable[..., Any] = getattr(stageline, name)
    signature = inspect.signature(function)
    assert list(signature.parameters) == FUNCTIONS[name]
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())
    assert signature.return_annotation is not inspect.Signature.empty
    assert "Raises" in (function.__doc__ or "") or "BadInput" in (function.__doc__ or "")


def test_scheduling_keywords_are_the_fields_of_the_settings() -> None:
    """Two belong to a run: the workload says what a hash stands for, the objective which TPOT to keep.

    An engine's limits per data-parallel rank become the replica's.
    """
    fields = set(Scheduling.__struct_fields__) - {"hash_block_tokens", "tpot_slo_ns"}
    fields |= {"max_num_seqs", "max_num_batched_tokens"}
    assert set(SchedulingKeywords.__annotations__) == fields


def test_plan_keywords_are_the_options_of_the_planner() -> None:
    """All but those that others become: names of networks and profiles, and what the planner sets itself."""
    keywords = set(get_type_hints(PlanKeywords))
    assert keywords == set(get_type_hints(ShapeKeywords)) | set(get_type_hints(DesignKeywords))
    derived = {
        "host", "profile", "efficiencies", "ring_step_ns", "strides", "serving", "credits_rule", "rank_tokens",
        "engine_sequence_ns", "draft", "longest_that_fits", "sampling",
    }  # fmt: skip
    assert set(PlanOptions.__struct_fields__) - derived <= keywords


def test_defaults_of_keywords_are_those_of_the_planner() -> None:
    """All but the rules and the token budget of the serving engine, which a program that plans directly leaves out."""
    options = stageline.plan_model("llama-3.1-8b", "h100-sxm", serving_engine="pipeline").options
    assert msgspec.structs.replace(options, serving=None, rank_tokens=None) == PlanOptions()


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import stageline", {"msgspec", "numpy", "stageline.api"}),
        ("import stageline; stageline.plan_model", {"cyclopts", "rich", "stageline.cli", "grpc", "matplotlib"}),
        ("import stageline; stageline.run, stageline.search", {"cyclopts", "rich", "stageline.cli", "matplotlib"}),
        ("import stage_server.settings, stageline.wire.frames", {"stageline.api", "stageline.cli", "numpy"}),
    ],
)
def test_what_an_import_does_not_load(program: str, absent: set[str]) -> None:
    shown = f"import sys; {program}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert absent & set(done.stdout.split()) == set()


def test_results_are_frozen(small: stageline.ModelPlan) -> None:
    with pytest.raises(AttributeError):
        small.plan = small.plan  # type: ignore[misc]
    assert isinstance(small, msgspec.Struct)
