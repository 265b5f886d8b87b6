"""A fleet of the reference as the product's, and both engines' results side by side."""

import dataclasses
from typing import Any

import msgspec

from stageline.engine.fleet import Fleet, HandOver, Pool, Tier
from stageline.engine.served import serve
from stageline.engine.types import HandOverRecord, LoadRecord, Request, RequestRecord, TierStats, Workload
from stageline.testing import ListWorkload, Run, run_fleet
from tests.property.differences import same
from tests.reference import fleet_results, fleet_types
from tests.reference.fleet_strategies import FleetScenario


def product_fleet(fleet: fleet_types.Fleet) -> Fleet:
    """The same settings in the product's words."""
    pools = (
        Pool(
            name=f"pool-{i}", plan=pool.plan, role=pool.role, scheduling=pool.scheduling,
            egress_bytes_per_s=pool.port.egress_bytes_per_s, ingress_bytes_per_s=pool.port.ingress_bytes_per_s,
            port_latency_ns=pool.port.latency_ns, host=product_tier(pool.host),
        )
        for i, pool in enumerate(fleet.pools)
    )  # fmt: skip
    hand_over = HandOver(
        bytes_per_s=1, order=fleet.handover, first_token=fleet.first_token, transfer=fleet.transfer,
        streamed=fleet.streamed, local_prefill_tokens=fleet.conditional_tokens or 0, decode_on_both=fleet.both_decodes,
    )  # fmt: skip
    return Fleet(
        pools=tuple(pools), hand_over=hand_over, balance=fleet.balance, front_end_ns=fleet.front_end_ns,
        store=product_tier(fleet.store), offload=fleet.offload, load=fleet.load, balance_sees_host=fleet.sees_host,
    )  # fmt: skip


def product_tier(tier: fleet_types.Tier | None) -> Tier | None:
    """The same figures."""
    return None if tier is None else Tier(**dataclasses.asdict(tier))


def product_workload(scenario: FleetScenario) -> Workload:
    """Its requests with the models that they name."""
    if scenario.like.starts_ns:
        return scenario.workload()
    named = [
        msgspec.structs.replace(e, model=scenario.models.get(e.index, "")) if isinstance(e, Request) else e
        for e in scenario.like.events()
    ]
    return ListWorkload(named)


def run_product_fleet(scenario: FleetScenario, *, paranoid: bool) -> Run:
    """The scenario on the in-process engine."""
    fleet = serve(product_fleet(scenario.fleet))
    return run_fleet(fleet, product_workload(scenario), seed=scenario.like.seed, paranoid=paranoid)


def agrees_on_a_fleet(scenario: FleetScenario) -> Run:
    """Both engines: every record, every token, every stage's account; once as users run it, once watched."""
    wanted = fleet_results.run_fleet(scenario.fleet, scenario.workload(), scenario.like.seed, scenario.models)
    for paranoid in (False, True):
        run = run_product_fleet(scenario, paranoid=paranoid)
        same("requests", [without_moves(r) for r in run.requests], [record.request for record in wanted.requests])
        same("loads", [record.load for record in run.requests], [load_of(record) for record in wanted.requests])
        hand_overs = [record.hand_over or HandOverRecord() for record in run.requests]
        same("hand-overs", hand_overs, [hand_over_of(record) for record in wanted.requests])
        same(
            "tokens", {i: ns for i, ns in run.tokens_ns.items() if ns}, {i: t for i, t in wanted.tokens_ns.items() if t}
        )
        same("window", run.totals.window_end_ns, wanted.window_end_ns)
        same("stages", list(run.totals.stages), wanted.stages)
        same("tiers", [tier_of(stats) for stats in run.totals.tiers], [*map(dataclasses.asdict, wanted.tiers)])
    return run


def without_moves(record: RequestRecord) -> RequestRecord:
    """What any run tells."""
    return msgspec.structs.replace(record, hand_over=None, load=None)


def load_of(record: fleet_types.FleetRecord) -> LoadRecord | None:
    """The reference's in the product's form."""
    return None if record.load is None else LoadRecord(**dataclasses.asdict(record.load))


def tier_of(stats: TierStats) -> dict[str, Any]:
    """The figures that the reference has, too."""
    told = msgspec.structs.asdict(stats)
    return {name: told[name] for name in (field.name for field in dataclasses.fields(fleet_types.TierRecord))}


def hand_over_of(record: fleet_types.FleetRecord) -> HandOverRecord:
    """The reference's in the product's form; nothing where it came to nothing."""
    told = record.handover
    if told is None:
        return HandOverRecord()
    return HandOverRecord(
        decode_replica=told.decode_replica, reserved_ns=told.reserved_ns, start_ns=told.transfer_start_ns,
        end_ns=told.transfer_end_ns, landed_ns=told.landed_ns, sent_bytes=told.sent_bytes,
    )  # fmt: skip
