"""Writes a run's trace: a track per stage, a KV counter per stage, a track per link, a track of requests, flows.

A flow leads from a request's slice through the microbatch that brought its first token, stage by stage. The size is
bounded: the first MAX_TRACE_SERVICES services in file order with the gaps before them, and the first MAX_TRACE_REQUESTS
requests by arrival; about 150 bytes per service.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import msgspec

from stageline.engine.types import RequestRecord
from stageline.report.events import Gap, Served, StageEvent
from stageline.report.idle import gap_pieces
from stageline.report.perfetto import packets
from stageline.report.perfetto.flows import first_token_flows
from stageline.report.perfetto.rows import RowAllocator
from stageline.report.pools import RunPools
from stageline.report.rundir import read_events, read_requests, read_run_pools

MAX_TRACE_SERVICES = 150_000
MAX_TRACE_REQUESTS = 5_000
_STAGES, _LINKS, _REQUESTS = 1, 2, 3  # uuids of the groups
_FIRST_UUID = 16

Flows = Mapping[tuple[int, int], list[int]]


class TraceSize(msgspec.Struct, frozen=True):
    """What went into a trace."""

    services: int
    cut: bool  # the run has more


def write_trace(directory: Path, path: Path) -> TraceSize:
    """The trace of a run directory. BadInput when it is damaged; OSError when `path` can't be written."""
    pools, requests = read_run_pools(directory), list(read_requests(directory))
    shown = sorted(requests, key=lambda r: (r.arrival_ns, r.index))[:MAX_TRACE_REQUESTS]
    latencies = [plan.links[-1].latency_ns for plan in pools.plans]
    flows = first_token_flows(shown, _last_ends(read_events(directory), pools), latencies)
    with path.open("wb") as file:
        trace = _Trace(pools, flows)
        file.write(trace.head())
        cut = False
        for event in read_events(directory):
            if trace.services == MAX_TRACE_SERVICES and isinstance(event, Served):
                cut = True
                break
            file.write(trace.event(event))
        file.write(trace.requests(shown))
    return TraceSize(trace.services, cut)


def _last_ends(events: Iterable[StageEvent], pools: RunPools) -> dict[int, list[int]]:
    """When each microbatch left the last visit, by replica; in the order of microbatches."""
    last, ends = [len(plan.visits) - 1 for plan in pools.plans], dict[int, list[int]]()
    for event in events:
        if isinstance(event, Served) and event.visit == last[event.replica]:
            ends.setdefault(event.replica, []).append(event.end_ns)
    return ends


class _Trace:
    """Turns events into packets."""

    def __init__(self, pools: RunPools, flows: Flows) -> None:
        self._pools, self._plans, self._flows = pools, pools.plans, flows
        self._first_link = list(accumulate((len(plan.visits) for plan in self._plans), initial=0))
        self._uuids = _FIRST_UUID
        self._stages: dict[tuple[int, int], int] = {}
        self._kv: dict[tuple[int, int], int] = {}
        self._links: dict[tuple[int, int, int], int] = {}  # replica, link, row
        self._rows: dict[tuple[int, int], RowAllocator] = {}
        self._left_ns: dict[tuple[int, int], int] = {}  # when a microbatch ended its last visit so far
        self._gaps: dict[tuple[int, int], Gap] = {}
        self.services = 0

    def head(self) -> bytes:
        """Groups, and the tracks of stages; tracks of links follow when they are first used."""
        out = [packets.group(_STAGES, "stages"), packets.group(_LINKS, "links"), packets.group(_REQUESTS, "requests")]
        rank = -2
        for replica, plan in enumerate(self._plans):
            for index, stage in enumerate(plan.stages):
                name = f"{self._whose(replica)}stage {index} ({stage.name})"
                rank += 2
                self._stages[replica, index] = uuid = self._next()
                out.append(packets.track(uuid, name, _STAGES, rank))
                if stage.kv_budget_bytes:
                    self._kv[replica, index] = counter = self._next()
                    out.append(packets.counter_track(counter, f"KV of {name}", _STAGES, rank + 1))
        return b"".join(out)

    def event(self, event: StageEvent) -> bytes:
        """The packets of one event."""
        key = event.replica, event.stage
        if isinstance(event, Served):
            self.services += 1
            return self._gap(key) + self._hop(event) + self._served(event)
        if isinstance(event, Gap):
            self._gaps[key] = event
            return b""
        return packets.counter(self._kv[key], event.at_ns, event.used_bytes) if key in self._kv else b""

    def requests(self, records: Iterable[RequestRecord]) -> bytes:
        """One slice per request with its phases inside it."""
        rows, uuids, out = RowAllocator(), list[int](), list[bytes]()
        for record in records:
            end = record.last_token_ns
            if end is None or record.admitted_ns is None or record.first_token_ns is None:
                continue
            row = rows.allocate(record.arrival_ns, end)
            if row == len(uuids):
                uuids.append(self._next())
                out.append(packets.track(uuids[row], "requests", _REQUESTS, row))
            out.extend(_phases(uuids[row], record, record.admitted_ns, record.first_token_ns, end))
        return b"".join(out)

    def _served(self, event: Served) -> bytes:
        flows = [index + 1 for index in self._flows.get((event.replica, event.number), ())]
        notes = packets.note("visit", event.visit) + packets.note("queued_ns", event.start_ns - event.arrival_ns)
        uuid = self._stages[event.replica, event.stage]
        return packets.slice_(uuid, f"mb {event.number}", event.start_ns, event.end_ns, flows, notes)

    def _gap(self, key: tuple[int, int]) -> bytes:
        gap = self._gaps.pop(key, None)
        if gap is None:
            return b""
        pieces = gap_pieces(gap)
        return b"".join(packets.slice_(self._stages[key], cause, begin, end) for cause, begin, end in pieces)

    def _hop(self, event: Served) -> bytes:
        """The link's slice: from the end of the previous visit to the arrival. Overlapping ones get rows of a name."""
        key = event.replica, event.number
        begin, self._left_ns[key] = self._left_ns.get(key), event.end_ns
        visits = len(self._plans[event.replica].visits)
        if event.visit == visits - 1:
            del self._left_ns[key]
        if begin is None or begin >= event.arrival_ns:
            return b""
        link = event.replica, event.visit
        row = self._rows.setdefault(link, RowAllocator()).allocate(begin, event.arrival_ns)
        head = b""
        if (*link, row) not in self._links:
            self._links[*link, row] = uuid = self._next()
            rank = self._first_link[event.replica] + event.visit
            head = packets.track(uuid, f"{self._whose(event.replica)}link {event.visit}", _LINKS, rank)
        return head + packets.slice_(self._links[*link, row], f"mb {event.number}", begin, event.arrival_ns)

    def _whose(self, replica: int) -> str:
        """How the names of a replica's tracks begin; "" for the only replica of a plan."""
        if self._pools.named:
            return f"{self._pools.replica_name(replica)} "
        return f"replica {replica} " if self._pools.replicas > 1 else ""

    def _next(self) -> int:
        self._uuids += 1
        return self._uuids


def _phases(uuid: int, record: RequestRecord, admitted_ns: int, first_ns: int, end_ns: int) -> Iterator[bytes]:
    """The request, and inside it where its time went; its flow leaves from the prefill."""
    notes = packets.note("prompt_tokens", record.prompt_tokens) + packets.note("output_tokens", record.output_tokens)
    yield packets.begin(uuid, f"request {record.index}", record.arrival_ns, (), notes)
    if admitted_ns > record.arrival_ns:
        yield packets.slice_(uuid, "queued", record.arrival_ns, admitted_ns)
    flow, moved = (record.index + 1,), record.hand_over
    if moved is None or moved.start_ns is None or moved.landed_ns is None:
        yield packets.slice_(uuid, "prefill", admitted_ns, first_ns, flow)
        if end_ns > first_ns:
            yield packets.slice_(uuid, "decode", first_ns, end_ns)
    else:
        yield from _handed_over(uuid, admitted_ns, first_ns, (moved.start_ns, moved.landed_ns), end_ns, flow)
    yield packets.end(uuid, end_ns)


def _handed_over(
    uuid: int, admitted_ns: int, first_ns: int, moved_ns: tuple[int, int], end_ns: int, flow: tuple[int, ...]
) -> Iterator[bytes]:
    """Prefill, the wait for room at a decode replica and for ports, the transfer, decode.

    The flow of the first token leaves from the part that gave it. Chunks may travel while the prefill goes on.
    """
    start_ns, landed_ns = moved_ns
    at_source = first_ns <= landed_ns
    prefilled_ns = min(first_ns, landed_ns) if at_source else start_ns
    yield packets.slice_(uuid, "prefill", admitted_ns, prefilled_ns, flow if at_source else ())
    if start_ns > prefilled_ns:
        yield packets.slice_(uuid, "waits for a port", prefilled_ns, start_ns)
    yield packets.slice_(uuid, "transfer", max(start_ns, prefilled_ns), landed_ns)
    if end_ns > landed_ns:
        yield packets.slice_(uuid, "decode", landed_ns, end_ns, () if at_source else flow)
