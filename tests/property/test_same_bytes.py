"""L9: the same inputs give the same bytes, in other processes, under other hash seeds and on other Pythons."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

# The plans of tests/data are Kimi K3 on 59 wafers (70 visits) and on 46, with jitter, as the planner once made them;
# they stay as they are. Made on CPython 3.11, x86-64: another value anywhere means that emulated time depends on where
# it is computed, or that a rule has changed.
DIGESTS = {
    "by-kind": "d5f82ddf998150728a23a87029222c5c550fc916e7b36927cc86ecb820cfb0fd",
    "fewest": "3a8f4a70c48c1b39c886f04234fda55e5552f6d3b1fbad099dbd915f9defb212",
}
RUN = """
import sys
from stageline.cli.main import invoke as run
sys.exit(run(["run", sys.argv[1], "--workload", sys.argv[2], "--requests", "25", "--kv", "grow", "--json"]))
"""


def digest(root: Path, plan: str, hash_seed: str) -> str:
    """One run in a process of its own."""
    command = [sys.executable, "-c", RUN, f"tests/data/{plan}.plan.json", "examples/traces/sample_azure.csv"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
    return str(msgspec.json.decode(done.stdout)["digest"])


@pytest.mark.parametrize("plan", DIGESTS)
def test_digest_is_the_same_everywhere(plan: str, root: Path) -> None:
    assert {digest(root, plan, seed) for seed in ("0", "1", "4242")} == {DIGESTS[plan]}
