"""One workload in process and on a cluster in containers; the digests must be the same string."""

import asyncio
import json
from pathlib import Path

from stageline.cli.main import invoke as run
from stageline.wire.router_client import RouterClient

WORKLOAD = "poisson:rate=40,input=200,output=6,requests=24"


async def _healthy(address: str) -> None:
    async with asyncio.timeout(60), RouterClient(address) as client:
        await client.healthy(50)


def digest(plan: Path, folder: Path, *flags: str, workload: str = WORKLOAD) -> str:
    """Of a run as a user makes it."""
    command = ["run", str(plan), "--workload", workload, "--seed", "5", "-o", str(folder), *flags]
    assert run(command) == 0, command
    found: str = json.loads((folder / "summary.json").read_text())["digest"]
    return found


def assert_same_digest(plan: Path, address: str, folder: Path) -> None:
    """A run on the cluster, once it is healthy, is the run in process."""
    asyncio.run(_healthy(address))
    here, there = digest(plan, folder / "here"), digest(plan, folder / "there", "--cluster", address)
    assert len(here) == 64
    assert here == there
