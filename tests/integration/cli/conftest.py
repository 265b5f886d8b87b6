"""What tests of commands run: a small plan, and a workload for it."""

from pathlib import Path

import pytest

from stageline.testing import uniform_plan

PLAN = uniform_plan(
    3, service_ns=1000, token_ns=10, latency_ns=100, bytes_per_token=10, kv_budget_bytes=10**6, kv_block_bytes=160,
    microbatch=2,
)  # fmt: skip
SPEC = "poisson:rate=1000,requests=30,input=uniform(5,40),output=uniform(1,9)"


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """The path of its file."""
    path = tmp_path / "plan.json"
    path.write_bytes(PLAN.canonical())
    return str(path)
