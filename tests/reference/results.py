"""From a finished run to the records of a run directory."""

from dataclasses import dataclass, field

from stageline.engine.settings import Scheduling
from stageline.engine.types import RequestRecord, StageRecord, Workload
from stageline.plan.schema import Plan
from tests.reference.attribution import RECORDED, by_timeline
from tests.reference.engine import Engine
from tests.reference.lateness import Lateness
from tests.reference.sequence import Sequence
from tests.reference.stage import Stage


@dataclass(frozen=True, slots=True)
class Results:
    """What the product has to reproduce to the nanosecond."""

    requests: list[RequestRecord]  # by index
    stages: list[StageRecord]  # by replica, stage
    window_start_ns: int
    window_end_ns: int
    tokens_ns: dict[int, list[int]] = field(default_factory=dict)  # by index: when each of its tokens came back


def run_reference(plan: Plan, scheduling: Scheduling, workload: Workload, seed: int) -> Results:
    """A whole run."""
    engine = Engine(plan, scheduling, workload, seed)
    engine.run()
    return results_of(engine)


def results_of(engine: Engine) -> Results:
    """The records of an engine whose run is over."""
    start_ns = engine.first_arrival_ns or 0
    end_ns = start_ns if engine.last_completion_ns is None else engine.last_completion_ns
    stages = [
        stage_record(stage, splits, r, start_ns, end_ns)
        for r, replica_stages in enumerate(engine.stages)
        for stage, splits in zip(replica_stages, replica_splits(engine, r), strict=True)
    ]
    tokens_ns = {sequence.index: sequence.tokens_ns for sequence in engine.sequences}
    return Results(request_records(engine), stages, start_ns, end_ns, tokens_ns)


def replica_splits(engine: Engine, replica: int) -> list[list[dict[str, int]]]:
    """By stage of a replica: every gap, split by cause."""
    reasons, lateness = engine.replicas[replica].reasons, Lateness(engine.stages[replica])
    return [[by_timeline(gap, reasons, lateness) for gap in stage.gaps] for stage in engine.stages[replica]]


def request_records(engine: Engine) -> list[RequestRecord]:
    """Finished and refused ones, by index."""
    records = [finished_record(sequence) for sequence in engine.sequences]
    for request in engine.refused:
        records.append(
            RequestRecord(
                index=request.index,
                replica=None,
                arrival_ns=request.arrival_ns,
                admitted_ns=None,
                first_token_ns=None,
                last_token_ns=None,
                prompt_tokens=request.prompt_tokens,
                output_tokens=0,
                preemptions=0,
                outcome="refused",
            )
        )
    return sorted(records, key=lambda record: record.index)


def finished_record(sequence: Sequence) -> RequestRecord:
    """One request that was taken; at the end of a run every such one is finished."""
    return RequestRecord(
        index=sequence.index,
        replica=sequence.replica,
        arrival_ns=sequence.request.arrival_ns,
        admitted_ns=sequence.admitted_ns,
        first_token_ns=sequence.tokens_ns[0],
        last_token_ns=sequence.tokens_ns[-1],
        prompt_tokens=sequence.request.prompt_tokens,
        output_tokens=sequence.generated,
        preemptions=sequence.preemptions,
        outcome="finished",
        cached_tokens=sequence.cached_tokens,
    )


def stage_record(stage: Stage, splits: list[dict[str, int]], replica: int, start_ns: int, end_ns: int) -> StageRecord:
    """Where one stage spent the window."""
    idle_ns = dict.fromkeys(RECORDED, 0)
    if stage.log:
        idle_ns["fill"] = stage.log[0].start_ns - start_ns
        idle_ns["drain"] = end_ns - stage.log[-1].end_ns
    else:
        idle_ns["fill"] = end_ns - start_ns
    for split in splits:
        for cause, ns in split.items():
            idle_ns[cause] = idle_ns.get(cause, 0) + ns
    return StageRecord(
        replica=replica,
        stage=stage.stage,
        window_ns=end_ns - start_ns,
        busy_ns=sum(service.end_ns - service.start_ns for service in stage.log),
        idle_ns=idle_ns,
        kv_peak_bytes=stage.kv_peak_bytes,
        kv_budget_bytes=stage.ledger.plan.kv_budget_bytes,
        microbatches=len(stage.log),
        visits=len(stage.visits),
    )
