"""Records which stages served a request when, for the requests whose traces are kept."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stageline.engine.types import RequestRecord
from stageline.report.spans.context import Sampler, TraceContext

MAX_VISIT_SPANS = 2_000  # per request; no reader wants more


class VisitSpan(NamedTuple):
    """One microbatch at one visit. Times in emulated ns."""

    replica: int
    stage: int
    visit: int
    microbatch: int
    arrival_ns: int
    start_ns: int
    end_ns: int


class RequestTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A kept request that has ended."""

    index: int
    arrival_ns: int
    trace_id: int
    parent: TraceContext | None
    visits: list[VisitSpan]
    left_out: int  # visits beyond MAX_VISIT_SPANS
    record: RequestRecord | None = None
    broken_ns: int = 0  # without a record: when the session broke off


class _OpenTrace:
    """A kept request in the system."""

    def __init__(self, index: int, arrival_ns: int, trace_id: int, parent: TraceContext | None) -> None:
        self._index, self._arrival_ns, self._trace_id, self._parent = index, arrival_ns, trace_id, parent
        self._visits: list[VisitSpan] = []
        self._left_out = 0

    def add(self, span: VisitSpan) -> None:
        """One more visit."""
        if len(self._visits) < MAX_VISIT_SPANS:
            self._visits.append(span)
        else:
            self._left_out += 1

    def ended(self, record: RequestRecord) -> RequestTrace:
        """The request has left the system."""
        return self._trace(self._visits, record, 0)

    def broken(self, now_ns: int) -> RequestTrace:
        """The session broke off: without the visits that had not ended by then."""
        visits = [v for v in self._visits if v.end_ns <= now_ns]
        return self._trace(visits, None, max(now_ns, self._arrival_ns))

    def _trace(self, visits: list[VisitSpan], record: RequestRecord | None, broken_ns: int) -> RequestTrace:
        return RequestTrace(
            index=self._index, arrival_ns=self._arrival_ns, trace_id=self._trace_id, parent=self._parent,
            visits=visits, left_out=self._left_out, record=record, broken_ns=broken_ns,
        )  # fmt: skip


class TraceRecorder:
    """A StageObserver and MemberObserver. `ended` gets every kept request once, after its last visit.

    Stage events must arrive before the end of their request. They do in one process, and from a router's copy of its
    stages. Memory is that of the kept requests in the system.
    """

    def __init__(self, sampler: Sampler, visits: int | Sequence[int], ended: Callable[[RequestTrace], None]) -> None:
        """`visits` of a route: of every replica, or by replica."""
        self._sampler, self._ended = sampler, ended
        self._visits = visits
        self._kept: dict[int, _OpenTrace] = {}
        self._members: dict[tuple[int, int], list[_OpenTrace]] = {}  # of microbatches in flight

    def arrived(self, index: int, arrival_ns: int, parent: TraceContext | None = None) -> None:
        """A request has arrived."""
        trace_id = self._sampler.kept(index, parent)
        if trace_id is not None:
            self._kept[index] = _OpenTrace(index, arrival_ns, trace_id, parent)

    def request(self, record: RequestRecord) -> None:
        """A request has left the system."""
        trace = self._kept.pop(record.index, None)
        if trace is not None:
            self._ended(trace.ended(record))

    def abandon(self, now_ns: int) -> None:
        """The session broke off: ends the open requests with the visits that had ended by then."""
        for trace in self._kept.values():
            self._ended(trace.broken(now_ns))
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
        if visit == self._last(replica):
            del self._members[key]
        span = VisitSpan(replica, stage, visit, number, arrival_ns, start_ns, end_ns)
        for trace in traces:
            trace.add(span)

    def _last(self, replica: int) -> int:
        """The last visit of a replica's route."""
        return (self._visits if isinstance(self._visits, int) else self._visits[replica]) - 1

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """Gaps belong to stages, not to requests."""

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """KV belongs to stages."""
