"""The spans of a request: drawn in wall time, with exact emulated times as attributes."""

from collections.abc import Callable, Iterator

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.util.types import AttributeValue

import stageline
from stageline.engine.fleet import Fleet
from stageline.engine.types import HandOverRecord, RequestRecord
from stageline.plan.schema import Plan
from stageline.report.pools import RunPools
from stageline.report.spans.context import Sampler, TraceContext
from stageline.report.spans.recorder import RequestTrace, VisitSpan

Attributes = dict[str, AttributeValue]
_SCOPE = InstrumentationScope("stageline", stageline.__version__)


class SpanMaker:
    """Makes spans of one run or live session. `unix_ns` maps its emulated time to wall time.

    A request's span reaches from its arrival to its last token, a visit's from the arrival at the stage to the end of
    its service. Both carry exact emulated times as attributes; names under `gen_ai.` are OpenTelemetry's and vLLM's.
    """

    def __init__(self, plan: Plan | Fleet, sampler: Sampler, unix_ns: Callable[[int], int]) -> None:
        self._sampler, self._unix_ns = sampler, unix_ns
        pools = RunPools(plan)
        self._pools = pools
        self._router = Resource({"service.name": "stageline-router", "service.version": stageline.__version__})
        self._stages = [
            [_stage_resource(r, s, stage.name, pools.of(r).name) for s, stage in enumerate(plan.stages)]
            for r, plan in enumerate(pools.plans)
        ]

    def spans(self, trace: RequestTrace) -> list[ReadableSpan]:
        """The request's span and one child per visit."""
        state = trace.parent.state if trace.parent else ""
        own = self._context(trace, 0, state)
        return [self._request(trace, own), *self._visits(trace, own, state)]

    def _request(self, trace: RequestTrace, own: SpanContext) -> ReadableSpan:
        record = trace.record
        start_ns, end_ns = _span_of(trace)
        error = _error(record)
        return ReadableSpan(
            name="request",
            context=own,
            parent=_remote(trace.parent),
            resource=self._router,
            attributes=self._facts(trace),
            events=[Event(name, timestamp=self._unix_ns(at)) for name, at in _moments(record)],
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR, error) if error else Status(StatusCode.OK),
            start_time=self._unix_ns(start_ns),
            end_time=self._unix_ns(end_ns),
            instrumentation_scope=_SCOPE,
        )

    def _visits(self, trace: RequestTrace, own: SpanContext, state: str) -> Iterator[ReadableSpan]:
        for number, visit in enumerate(trace.visits, start=1):
            yield ReadableSpan(
                name=self._stage_name(visit),
                context=self._context(trace, number, state),
                parent=own,
                resource=self._stages[visit.replica][visit.stage],
                attributes=_visit_facts(visit),
                kind=SpanKind.INTERNAL,
                start_time=self._unix_ns(visit.arrival_ns),
                end_time=self._unix_ns(visit.end_ns),
                instrumentation_scope=_SCOPE,
            )

    def _stage_name(self, visit: VisitSpan) -> str:
        pool = self._pools.of(visit.replica)
        return f"{pool.name} stage {visit.stage} ({pool.plan.stages[visit.stage].name})".lstrip()

    def _context(self, trace: RequestTrace, number: int, state: str) -> SpanContext:
        span_id = self._sampler.span_id(trace.index, number)
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(trace.trace_id, span_id, False, flags, TraceState.from_header([state]))

    def _facts(self, trace: RequestTrace) -> Attributes:
        record = trace.record
        pool = self._pools.of(record.replica or 0) if record else self._pools.pools[0]
        facts: Attributes = {"gen_ai.request.model": pool.plan.model, "stageline.request": trace.index}
        if trace.left_out:
            facts["stageline.visits_left_out"] = trace.left_out
        if record is None:
            return facts
        facts |= {
            "gen_ai.usage.input_tokens": record.prompt_tokens,
            "gen_ai.usage.output_tokens": record.output_tokens,
            "stageline.outcome": record.outcome,
            "stageline.preemptions": record.preemptions,
            "stageline.arrival_ns": record.arrival_ns,
        }
        if record.replica is not None:
            facts["stageline.replica"] = record.replica
            facts |= {"stageline.pool": pool.name} if pool.name else {}
        if record.hand_over is not None:
            facts |= self._moved(record.hand_over)
        if record.cached_tokens is not None:
            facts["stageline.cached_tokens"] = record.cached_tokens
        for name, at_ns in (
            ("time_in_queue", record.admitted_ns),
            ("time_to_first_token", record.first_token_ns),
            ("e2e", record.last_token_ns if record.outcome == "finished" else None),
        ):
            if at_ns is not None:
                facts[f"gen_ai.latency.{name}"] = (at_ns - record.arrival_ns) / 1e9
        return facts

    def _moved(self, moved: HandOverRecord) -> Attributes:
        """Where the KV went, and how much."""
        found: Attributes = {"stageline.kv_sent_bytes": moved.sent_bytes}
        if moved.decode_replica is not None:
            found["stageline.decode_replica"] = moved.decode_replica
            found["stageline.decode_pool"] = self._pools.of(moved.decode_replica).name
        return found


def _stage_resource(replica: int, stage: int, name: str, pool: str) -> Resource:
    about: Attributes = {"service.name": "stageline-stage", "service.version": stageline.__version__}
    identity: Attributes = {"stageline.replica": replica, "stageline.stage": stage, "stageline.stage_name": name}
    identity |= {"stageline.pool": pool} if pool else {}
    return Resource(about | identity | {"service.instance.id": f"{replica}/{stage}"})


def _visit_facts(visit: VisitSpan) -> Attributes:
    return {
        "stageline.visit": visit.visit,
        "stageline.microbatch": visit.microbatch,
        "stageline.arrival_ns": visit.arrival_ns,
        "stageline.queued_ns": visit.start_ns - visit.arrival_ns,
        "stageline.service_ns": visit.end_ns - visit.start_ns,
    }


def _span_of(trace: RequestTrace) -> tuple[int, int]:
    """From arrival to end, as far as they are known."""
    record = trace.record
    if record is None:
        return trace.arrival_ns, trace.broken_ns
    known = [v.end_ns for v in trace.visits[-1:]]
    known += [at for at in (record.admitted_ns, record.last_token_ns) if at is not None]
    return record.arrival_ns, max((record.arrival_ns, *known))


def _moments(record: RequestRecord | None) -> Iterator[tuple[str, int]]:
    if record and record.admitted_ns is not None:
        yield "admitted", record.admitted_ns
    if record and record.first_token_ns is not None:
        yield "first token", record.first_token_ns
    if record and (moved := record.hand_over):
        for name, at_ns in (("KV transfer begins", moved.start_ns), ("KV has landed", moved.landed_ns)):
            if at_ns is not None:
                yield name, at_ns


def _error(record: RequestRecord | None) -> str:
    """Why the span has status ERROR; empty if it has not."""
    if record is None:
        return "the session broke off"
    return "" if record.outcome in ("finished", "cancelled") else record.outcome


def _remote(parent: TraceContext | None) -> SpanContext | None:
    if parent is None:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(parent.trace_id, parent.span_id, True, flags, TraceState.from_header([parent.state]))
