"""A small real run."""

from pathlib import Path

import pytest

from stageline.cost.entries import Affine
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Defaults, LinkPlan, Plan, StagePlan, Visit
from stageline.report.slo import parse_slo
from stageline.report.summary import RunFacts
from stageline.report.writer import RunWriter
from stageline.workload import open_workload


def plan(stages: int = 8, slow: int = 5, replicas: int = 1) -> Plan:
    """A chain of stages; one takes twice as long."""
    return Plan(
        model="demo",
        device="d",
        stages=tuple(
            StagePlan(name=f"s{i}", layers=(i,), kv_budget_bytes=10**6, kv_block_bytes=160) for i in range(stages)
        ),
        visits=tuple(Visit(stage=i, layers=(i,), cost=int(i == slow), min_service_ns=1000) for i in range(stages)),
        links=(LinkPlan(latency_ns=100, bytes_per_s=10**9, bytes_per_token=10),) * (stages + 1),
        costs=(Affine(base_ns=1000, token_ns=10), Affine(base_ns=2000, token_ns=10)),
        defaults=Defaults(microbatch=2, credits=stages),
        replicas=replicas,
    )


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with events and an objective."""
    directory = tmp_path_factory.mktemp("run")
    workload = open_workload("closed:users=20,requests=60,input=uniform(10,50),output=uniform(1,9)", seed=3)
    with RunWriter(plan(), directory, slo=parse_slo("ttft=1s"), events=True) as writer:
        totals = inprocess.run(
            plan(), Scheduling(), workload, seed=3, observer=writer, stage_observer=writer.stage_observer, paranoid=True
        )
        facts = RunFacts(engine="inprocess", seed=3, command="x", workload="w", rows={}, wall_s=1.0, credits=8)
        writer.finish(totals, facts)
    return directory
