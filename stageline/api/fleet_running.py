"""A fleet as it runs a workload: its own settings, the workload's and those that were given with the run."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stageline.api.scheduling import settle
from stageline.engine.fleet import Fleet, Pool
from stageline.engine.fleet_check import check_hash_blocks, pool_place
from stageline.engine.policies.routing import ROUTING
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError
from stageline.report.slo import Slo
from stageline.workload import DescribedWorkload
from stageline.workload.recording import RecordedWorkload

OF_THE_ROUTER = ("balance", "front_end_ns")  # settings of the fleet; all others are each pool's


def settled_fleet(
    fleet: Fleet,
    workload: DescribedWorkload,
    given: Mapping[str, Any],
    *,
    slo: Slo | None = None,
    serving_engine: str | None = None,
) -> Fleet:
    """The fleet with what was given: settings of the router for the fleet, all others for every pool.

    Raises UsageError for what can't be used, and names the pool.
    """
    _check_takes(workload, serving_engine)
    blocks = workload.hash_block_tokens
    own = {name: value for name, value in given.items() if name not in OF_THE_ROUTER}
    shared = {name: value for name, value in given.items() if name in OF_THE_ROUTER}
    pools = tuple(_settled(pool, own, blocks, slo) for pool in fleet.pools)
    found = msgspec.structs.replace(fleet, pools=pools, **shared)
    ROUTING.check(Scheduling(balance=found.balance, prefix_cache=any(pool.scheduling.prefix_cache for pool in pools)))
    check_hash_blocks(found, blocks, "fleet")
    return found


def without_router(scheduling: Scheduling) -> Scheduling:
    """The settings of a pool: those of the router at their defaults."""
    plain = {name: getattr(Scheduling(), name) for name in OF_THE_ROUTER}
    return msgspec.structs.replace(scheduling, **plain)


def _check_takes(workload: DescribedWorkload, serving_engine: str | None) -> None:
    if serving_engine is not None:
        raise UsageError(
            f"--serving-engine {serving_engine}: each pool of a fleet has its own: give engine-profile in its [[pool]]"
        )
    if isinstance(workload, RecordedWorkload):
        raise UsageError(
            "a recorded session belongs to the plan that it was recorded on: run it on that plan, or give a fleet "
            "another workload"
        )


def _settled(pool: Pool, given: Mapping[str, Any], hash_block_tokens: int, slo: Slo | None) -> Pool:
    base = msgspec.structs.replace(pool.scheduling, hash_block_tokens=hash_block_tokens)
    try:
        settings = settle(base, given, pool.plan, slo=slo)
    except UsageError as error:
        raise UsageError(f"{pool_place('fleet', pool.name)}: {error}") from None
    return msgspec.structs.replace(pool, scheduling=settings)
