"""A fleet as it runs a workload: its own settings, the workload's and those that were given with the run."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stageline.api.scheduling import check_recorded_seed, settle
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
    seed: int,
    given: Mapping[str, Any],
    *,
    slo: Slo | None = None,
    serving_engine: str | None = None,
) -> Fleet:
    """The fleet with what was given: settings of the router for the fleet, all others for every pool.

    Raises UsageError for what can't be used, and names the pool.
    """
    check_no_engine(serving_engine)
    if isinstance(workload, RecordedWorkload):
        _check_recording(workload, seed)
        return changed_fleet(fleet, given, slo=slo)
    blocks = workload.hash_block_tokens
    pools = (
        msgspec.structs.replace(p, scheduling=msgspec.structs.replace(p.scheduling, hash_block_tokens=blocks))
        for p in fleet.pools
    )
    found = changed_fleet(msgspec.structs.replace(fleet, pools=tuple(pools)), given, slo=slo)
    check_hash_blocks(found, blocks, "fleet")
    return found


def without_router(scheduling: Scheduling) -> Scheduling:
    """The settings of a pool: those of the router at their defaults."""
    plain = {name: getattr(Scheduling(), name) for name in OF_THE_ROUTER}
    return msgspec.structs.replace(scheduling, **plain)


def changed_fleet(fleet: Fleet, given: Mapping[str, Any], *, slo: Slo | None = None) -> Fleet:
    """The fleet with other settings. Raises UsageError, and names the pool."""
    own = {name: value for name, value in given.items() if name not in OF_THE_ROUTER}
    shared = {name: value for name, value in given.items() if name in OF_THE_ROUTER}
    pools = tuple(_settled(pool, own, slo) for pool in fleet.pools)
    found = msgspec.structs.replace(fleet, pools=pools, **shared)
    ROUTING.check(Scheduling(balance=found.balance, prefix_cache=any(pool.scheduling.prefix_cache for pool in pools)))
    return found


def check_no_engine(serving_engine: str | None) -> None:
    """Raises UsageError for one serving engine for all pools."""
    if serving_engine is not None:
        raise UsageError(
            f"--serving-engine {serving_engine}: each pool of a fleet has its own: give engine-profile in its [[pool]]"
        )


def check_no_code(fleet: Fleet) -> None:
    """Raises UsageError for policies that are classes: servers take a fleet from a file, which may name no code."""
    named = (name for pool in fleet.pools for name in (*pool.scheduling.users_classes, fleet.balance))
    code = next((name for name in named if ":" in name), None)
    if code is not None:
        raise UsageError(f"{code}: servers import no code that a fleet names: run it without --engine cluster")


def _check_recording(workload: RecordedWorkload, seed: int) -> None:
    check_recorded_seed(workload, seed)
    if not workload.header.fleet_digest:
        raise UsageError(
            "the session was recorded on a plan, whose settings are in the recording: run it on that plan, or give a "
            "fleet another workload"
        )


def _settled(pool: Pool, given: Mapping[str, Any], slo: Slo | None) -> Pool:
    try:
        settings = settle(pool.scheduling, given, pool.plan, slo=slo)
    except UsageError as error:
        raise UsageError(f"{pool_place('fleet', pool.name)}: {error}") from None
    return msgspec.structs.replace(pool, scheduling=settings)
