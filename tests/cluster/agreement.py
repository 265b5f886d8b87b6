"""The cluster against the in-process engine: one scenario, over real gRPC."""

import asyncio
from collections.abc import Sequence
from operator import itemgetter

import uvloop

from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Request
from stageline.runtime.deployment import Deployment, Document
from stageline.testing import run_fleet
from tests.cluster.servers import cluster
from tests.property.differences import same

MODES = ("size", "capped", "full")


def compare(
    document: Document, scheduling: Scheduling | None, events: Sequence[Request | Cancellation], seed: int
) -> None:
    """All records and the times of all tokens. The seed decides window and payload."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_compare(document, scheduling, events, seed))


async def _compare(
    document: Document, scheduling: Scheduling | None, events: Sequence[Request | Cancellation], seed: int
) -> None:
    fleet = Deployment(document).with_scheduling(scheduling or Scheduling())
    wanted = run_fleet(fleet, events, seed=seed, paranoid=False)
    async with asyncio.timeout(60), cluster(document, window=1 + seed % 8) as servers:
        totals, seen, _ = await servers.run(events, scheduling, seed=seed, payload=MODES[seed % len(MODES)])
    same("totals", totals, wanted.totals)
    same("requests", seen.by_index(), wanted.requests)
    same("tokens", sorted(seen.tokens, key=itemgetter(0)), sorted(wanted.seen.tokens, key=itemgetter(0)))
