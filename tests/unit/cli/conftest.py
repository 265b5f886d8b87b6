"""What tests of commands run: a small plan, and a workload for it."""

from pathlib import Path

import pytest

from stageline.cost.entries import Affine
from stageline.plan.schema import Defaults, LinkPlan, Plan, StagePlan, Visit

PLAN = Plan(
    model="demo",
    device="d",
    stages=tuple(StagePlan(name=f"s{i}", layers=(i,), kv_budget_bytes=10**6, kv_block_bytes=160) for i in range(3)),
    visits=tuple(Visit(stage=i, layers=(i,), cost=0, min_service_ns=1000) for i in range(3)),
    links=(LinkPlan(latency_ns=100, bytes_per_s=10**9, bytes_per_token=10),) * 4,
    costs=(Affine(base_ns=1000, token_ns=10),),
    defaults=Defaults(microbatch=2, credits=3),
)
SPEC = "poisson:rate=1000,requests=30,input=uniform(5,40),output=uniform(1,9)"


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """The path of its file."""
    path = tmp_path / "plan.json"
    path.write_bytes(PLAN.canonical())
    return str(path)
