"""Gathers, for the requests whose traces are kept, which stages served them when."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from stageline.engine.types import RequestRecord
from stageline.report.spans.context import Sampler, TraceContext

MAX_VISITS = 2_000  # per request; a trace of more serves no reader


class VisitSpan(NamedTuple):
    """One microbatch at one visit. Times in emulated ns."""

    replica: int
    stage: int
    visit: int
    microbatch: int
    arrival_ns: int
    start_ns: int
    end_ns: int


class RequestTrace(msgspec.Struct, kw_only=True):
    """A kept request: mutable until it has ended."""

    index: int
    arrival_ns: int
    trace_id: int
    parent: TraceContext | None
    visits: list[VisitSpan] = []
    left_out: int = 0  # visits beyond MAX_VISITS
    record: RequestRecord | None = None
    broken_ns: int = 0  # without a record: when the session broke off


class TraceRecorder:
    """A StageObserver and MemberObserver. `ended` gets every kept request once, after its last visit.

    What the stages tell must reach it before the request's end does: in one process and from a router's copy of its
    stages it does. Memory is that of the kept requests in the system.
    """

    def __init__(self, sampler: Sampler, visits: int, ended: Callable[[RequestTrace], None]) -> None:
        self._sampler, self._ended = sampler, ended
        self._last = visits - 1
        self._kept: dict[int, RequestTrace] = {}
        self._members: dict[tuple[int, int], list[RequestTrace]] = {}  # of microbatches on their way

    def arrived(self, index: int, arrival_ns: int, parent: TraceContext | None = None) -> None:
        """A request has arrived."""
        trace_id = self._sampler.kept(index, parent)
        if trace_id is not None:
            self._kept[index] = RequestTrace(index=index, arrival_ns=arrival_ns, trace_id=trace_id, parent=parent)

    def request(self, record: RequestRecord) -> None:
        """A request has left the system."""
        trace = self._kept.pop(record.index, None)
        if trace is not None:
            trace.record = record
            self._ended(trace)

    def abandon(self, now_ns: int) -> None:
        """The session broke off: what is known of the open requests, but not what lay ahead of them."""
        for trace in self._kept.values():
            trace.broken_ns = max(now_ns, trace.arrival_ns)
            trace.visits = [v for v in trace.visits if v.end_ns <= now_ns]
            self._ended(trace)
        self._kept.clear()
        self._members.clear()

    def formed(self, replica: int, number: int, requests: Iterable[int]) -> None:
        """See MemberObserver."""
        kept = self._kept
        if kept and (traces := [kept[index] for index in requests if index in kept]):
            self._members[replica, number] = traces

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None:
        """See StageObserver."""
        key = replica, number
        traces = self._members.get(key)
        if traces is None:
            return
        if visit == self._last:
            del self._members[key]
        span = VisitSpan(replica, stage, visit, number, arrival_ns, start_ns, end_ns)
        for trace in traces:
            if len(trace.visits) < MAX_VISITS:
                trace.visits.append(span)
            else:
                trace.left_out += 1

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """Gaps belong to stages, not to requests."""

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """KV belongs to stages."""
