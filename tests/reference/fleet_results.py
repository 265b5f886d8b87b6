"""From a finished run of a fleet to its records."""

from collections.abc import Mapping

from stageline.engine.types import RequestRecord, Workload
from tests.reference.fleet import FleetEngine
from tests.reference.fleet_replica import Journey
from tests.reference.fleet_types import Fleet, FleetRecord, FleetResults, HandOverRecord, PortRecord, TierRecord
from tests.reference.results import replica_splits, stage_record
from tests.reference.tiers import Key, TierState


def run_fleet(fleet: Fleet, workload: Workload, seed: int, models: Mapping[int, str] | None = None) -> FleetResults:
    """A whole run."""
    engine = FleetEngine(fleet, workload, seed, models)
    engine.run()
    return results_of(engine)


def results_of(engine: FleetEngine) -> FleetResults:
    """The records of an engine whose run is over."""
    start_ns = engine.first_arrival_ns or 0
    end_ns = window_end_ns(engine, start_ns)
    journeys = dict(sorted(engine.book.journeys.items()))
    return FleetResults(
        requests=[record_of(engine, journey) for journey in journeys.values()],
        stages=[
            stage_record(stage, splits, r, start_ns, end_ns)
            for r, stages in enumerate(engine.stages)
            for stage, splits in zip(stages, replica_splits(engine, r), strict=True)
        ],
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        tokens_ns={index: journey.tokens_ns for index, journey in journeys.items() if journey.first is not None},
        ports=[port_record(engine, r) for r in range(len(engine.replicas))] if engine.transfers else [],
        tiers=tier_records(engine),
        stories={index: str(journey.story) for index, journey in journeys.items()},
    )


def window_end_ns(engine: FleetEngine, start_ns: int) -> int:
    """The last completion, or the last landing with which a request ended."""
    return max(start_ns, engine.last_completion_ns or 0, engine.last_end_at_landing_ns)


def record_of(engine: FleetEngine, journey: Journey) -> FleetRecord:
    """One request, whatever became of it."""
    return FleetRecord(request_record(journey), handover_record(engine, journey), journey.load)


def request_record(journey: Journey) -> RequestRecord:
    """As of any run; the replica is the one where it is prefilled."""
    request, first, tokens_ns = journey.request, journey.first, journey.tokens_ns
    parts = [part for part in (first, journey.second) if part is not None]
    return RequestRecord(
        index=request.index,
        replica=None if first is None else first.replica,
        arrival_ns=request.arrival_ns,
        admitted_ns=None if first is None else first.admitted_ns,
        first_token_ns=tokens_ns[0] if tokens_ns else None,
        last_token_ns=tokens_ns[-1] if tokens_ns else None,
        prompt_tokens=request.prompt_tokens,
        output_tokens=len(tokens_ns),
        preemptions=sum(part.preemptions for part in parts),
        outcome=str(journey.story.state),
        cached_tokens=None if first is None else first.cached_tokens,
    )


def handover_record(engine: FleetEngine, journey: Journey) -> HandOverRecord | None:
    """Of a request that came to a prefill replica."""
    first, second, transfers = journey.first, journey.second, journey.transfers
    if first is None or engine.fleet_replicas[first.replica].pool.role != "prefill":
        return None
    landed = [t.landed_ns for t in transfers if t.last]
    return HandOverRecord(
        prefill_replica=first.replica,
        decode_replica=None if second is None else second.replica,
        reserved_ns=None if second is None else second.admitted_ns,
        transfer_start_ns=transfers[0].start_ns if transfers else None,
        transfer_end_ns=transfers[-1].end_ns if transfers else None,
        landed_ns=landed[0] if landed else None,
        sent_bytes=sum(t.size_bytes for t in transfers),
    )


def tier_records(engine: FleetEngine) -> list[TierRecord]:
    """Host memory by replica, then the store."""
    states = [(replica.index, replica.host) for replica in engine.fleet_replicas]
    return [tier_record(replica, state) for replica, state in [*states, (None, engine.store)] if state is not None]


def tier_record(replica: int | None, state: TierState) -> TierRecord:
    """What a tier did."""
    return TierRecord(
        replica=replica,
        hit_blocks=state.loaded_blocks,
        written_blocks=count_blocks(state.written),
        evicted_blocks=count_blocks(state.evicted),
        dropped_blocks=count_blocks(state.dropped),
        read_bytes=state.read_bytes,
        written_bytes=sum(key[1] for key in state.written),
        peak_bytes=state.peak_bytes,
    )


def count_blocks(keys: list[Key]) -> int:
    """Snapshots and window KV left out."""
    return sum(key[2] == "block" for key in keys)


def port_record(engine: FleetEngine, replica: int) -> PortRecord:
    """What both ports of a replica carried."""
    out = [t for t in engine.transfers if t.source == replica]
    into = [t for t in engine.transfers if t.destination == replica]
    return PortRecord(
        replica=replica,
        egress_bytes=sum(t.size_bytes for t in out),
        egress_busy_ns=sum(t.end_ns - t.start_ns for t in out),
        ingress_bytes=sum(t.size_bytes for t in into),
        ingress_busy_ns=sum(t.end_ns - t.start_ns for t in into),
    )
