"""Plans with every kind of cost give the same run whether service times are computed one by one or as vectors."""

from pathlib import Path

import pytest

from stageline.catalog.loader import Catalog
from stageline.cost.kernel_timings import make_profile
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Plan
from stageline.report.run_writer import RunWriter
from stageline.report.summary import RunFacts
from stageline.workload import open_workload

SHELF = Catalog()
FACTS = RunFacts(engine="inprocess", seed=3, command="", workload="", rows={}, wall_s=0, credits=1)


def digest(plan: Plan, *, one_by_one: bool) -> str | None:
    """`paranoid` checks every service, so that the event heap computes them one by one."""
    load = open_workload("poisson:rate=50,input=uniform(10,3000),output=uniform(1,40)", requests=40, seed=3)
    with RunWriter(plan) as writer:
        totals = inprocess.run(plan, Scheduling(), load, seed=3, observer=writer, paranoid=one_by_one)
        return writer.finish(totals, FACTS).digest


@pytest.mark.parametrize(
    "options",
    [
        {"expert_parallel": 32, "expert_imbalance": 1.1, "overlap": True},
        {"tensor_parallel": 8, "context_parallel": 2, "devices": 64},
        {
            "tensor_parallel": 8,
            "sequence_parallel": True,
            "devices": 32,
            "expert_parallel": 8,
            "expert_imbalance": 1.05,
        },
    ],
    ids=["experts", "ring", "stages"],
)
def test_groups(options: dict[str, object]) -> None:
    asked = PlanOptions(context_tokens=4096, **options)  # type: ignore[arg-type]
    plan = make_plan(SHELF.model("deepseek-v3").spec, SHELF.device("h800").device, asked).plan
    assert digest(plan, one_by_one=True) == digest(plan, one_by_one=False) is not None


def test_measured_stages(shared_data: Path) -> None:
    folder = shared_data / "measured" / "kernels_RTXPRO6000_Llama-3.1-8B_bf16_tp1"
    texts = [(folder / f"{name}.csv").read_text() for name in ("dense", "attention", "per_sequence")]
    profile = make_profile(*texts, name="p", model="llama-3.1-8b", device="rtx-pro-6000", source="kernels")
    asked = PlanOptions(profile=profile, devices=4)
    plan = make_plan(SHELF.model("llama-3.1-8b").spec, SHELF.device("rtx-pro-6000").device, asked).plan
    assert digest(plan, one_by_one=True) == digest(plan, one_by_one=False) is not None
