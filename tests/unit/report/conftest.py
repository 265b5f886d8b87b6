"""A small real run."""

from pathlib import Path

import pytest

from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.report.run_writer import RunWriter
from stageline.report.slo import parse_slo
from stageline.report.summary import RunFacts
from stageline.testing import uniform_plan
from stageline.workload import open_workload


def plan(stages: int = 8, slow: int = 5, replicas: int = 1) -> Plan:
    """A chain of stages; one takes twice as long."""
    return uniform_plan(
        service_ns=[1000 * (1 + (i == slow)) for i in range(stages)], token_ns=10, latency_ns=100, bytes_per_token=10,
        kv_budget_bytes=10**6, kv_block_bytes=160, microbatch=2, replicas=replicas,
    )  # fmt: skip


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
