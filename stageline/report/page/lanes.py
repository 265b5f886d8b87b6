"""events.jsonl as the page draws it: per stage, where each slice of time went, and its services one by one.

Slices cover the whole run, however long. The first MAX_EXACT_SERVICES services of the file are kept one by one; file
order is nearly that of time, so a longer run is exact at its beginning and has only slices after that.
"""

from array import array
from collections.abc import Iterable

import numpy as np

from stageline.cost.arrays import IntArray
from stageline.engine.causes import SHOWN
from stageline.engine.types import StageRecord
from stageline.report.events import Gap, Kv, Served, StageEvent
from stageline.report.idle import gap_pieces
from stageline.report.page.bins import Bins
from stageline.report.page.columns import Packer, zigzag

MAX_EXACT_SERVICES = 600_000  # more than a million events with their gaps; about 5 MB of page
MAX_CELLS = 600_000  # lanes x slices x categories
CATEGORIES = ("busy", *SHOWN)  # from the bottom of a stack up
_CAUSE_CODE: dict[str, int] = {cause: CATEGORIES.index(cause) for cause in SHOWN}
_FLUSH = 1 << 16


class Lane:
    """One stage of one replica."""

    def __init__(self, record: StageRecord, bins: Bins) -> None:
        self.record, self._bins = record, bins
        self.shares = {name: bins.empty() for name in CATEGORIES}
        self.services = {name: array("q") for name in ("gap", "duration", "wait", "number", "visit", "pieces")}
        self.pieces = {name: array("q") for name in ("cause", "length")}
        self.kv = (array("q"), array("q"))
        self.free_ns = bins.start_ns
        self._spans: dict[str, tuple[array[int], array[int]]] = {n: (array("q"), array("q")) for n in CATEGORIES}
        self._gap: Gap | None = None
        self._buffered = 0

    def gap(self, event: Gap) -> None:
        """Idle time; the service that ends it comes next."""
        self._gap = event

    def served(self, event: Served, exact: bool) -> None:
        """A service, and the gap before it."""
        pieces = self._pieces(event.start_ns)
        at = self.free_ns
        for cause, length in pieces:
            self._span(cause, at, at + length)
            at += length
        self._span("busy", event.start_ns, event.end_ns)
        if exact:
            row = (event.start_ns - self.free_ns, event.end_ns - event.start_ns, event.start_ns - event.arrival_ns)
            for column, value in zip(
                self.services.values(), (*row, event.number, event.visit, len(pieces)), strict=True
            ):
                column.append(value)
            for cause, length in pieces:
                self.pieces["cause"].append(_CAUSE_CODE[cause])
                self.pieces["length"].append(length)
        self.free_ns = event.end_ns

    def finish(self, end_ns: int) -> None:
        """The rest of the window is drain (or fill, when nothing was ever served)."""
        self._span("drain" if self.record.microbatches else "fill", self.free_ns, end_ns)
        self._flush()

    def _pieces(self, start_ns: int) -> list[tuple[str, int]]:
        gap, self._gap = self._gap, None
        if start_ns <= self.free_ns:
            return []
        if gap is None:  # engines report what lies before the first service at the end of a run, not as a gap
            return [("fill", start_ns - self.free_ns)]
        return [(cause, end - begin) for cause, begin, end in gap_pieces(gap)]

    def _span(self, name: str, begin_ns: int, end_ns: int) -> None:
        spans = self._spans[name]
        spans[0].append(begin_ns)
        spans[1].append(end_ns)
        self._buffered += 1
        if self._buffered >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        for name, (begin, end) in self._spans.items():
            if begin:
                self._bins.cover(self.shares[name], _ints(begin), _ints(end))
                self._spans[name] = (array("q"), array("q"))
        self._buffered = 0


class Lanes:
    """All stages of a run. `exact_services` counts what is kept one by one, `services` all."""

    def __init__(self, stages: Iterable[StageRecord], start_ns: int) -> None:
        records = sorted(stages, key=lambda s: (s.replica, s.stage))
        window_ns = records[0].window_ns if records else 0
        count = max(16, min(1024, MAX_CELLS // (len(CATEGORIES) * max(1, len(records)))))
        self.bins = Bins(start_ns, window_ns, count)
        self.end_ns = start_ns + window_ns
        self.lanes = {(r.replica, r.stage): Lane(r, self.bins) for r in records}
        self.services = self.exact_services = 0
        self.exact_until_ns = self.end_ns

    def read(self, events: Iterable[StageEvent]) -> None:
        """Every event of the run, in file order."""
        lanes = self.lanes
        for event in events:
            lane = lanes[event.replica, event.stage]
            if isinstance(event, Served):
                exact = self.services < MAX_EXACT_SERVICES
                if exact:
                    self.exact_services += 1
                elif self.services == MAX_EXACT_SERVICES:
                    self.exact_until_ns = min(lane.free_ns for lane in lanes.values())
                lane.served(event, exact)
                self.services += 1
            elif isinstance(event, Kv):
                lane.kv[0].append(event.at_ns)
                lane.kv[1].append(event.used_bytes)
            else:
                lane.gap(event)
        for lane in lanes.values():
            lane.finish(self.end_ns)

    def pack(self, packer: Packer) -> None:
        """Columns of all lanes, one lane after the other. Shares are of 255."""
        lanes = list(self.lanes.values())
        for name in CATEGORIES:
            shares = np.concatenate([lane.shares[name] for lane in lanes])
            if shares.any():
                packer.add(f"share.{name}", (shares * 255 + self.bins.width_ns // 2) // self.bins.width_ns)
        packer.add("lane.services", np.array([len(lane.services["gap"]) for lane in lanes]))
        for name in ("gap", "duration", "wait", "visit", "pieces"):
            packer.add(f"service.{name}", np.concatenate([_ints(lane.services[name]) for lane in lanes]))
        steps = [np.diff(_ints(lane.services["number"]), prepend=0) for lane in lanes]
        packer.add("service.number", zigzag(np.concatenate(steps)))
        for name in ("cause", "length"):
            packer.add(f"piece.{name}", np.concatenate([_ints(lane.pieces[name]) for lane in lanes]))
        if any(lane.kv[0] for lane in lanes):
            packer.add("kv", np.concatenate([_kv(lane, self.bins) for lane in lanes]))


def _kv(lane: Lane, bins: Bins) -> IntArray:
    """Peak of the ledger in each slice, in thousandths of its budget, rounded up."""
    peaks = bins.peaks(_ints(lane.kv[0]), _ints(lane.kv[1]))
    budget = lane.record.kv_budget_bytes or 1
    return np.array([-(-1000 * int(v) // budget) for v in peaks], dtype=np.int64)


def _ints(values: "array[int]") -> IntArray:
    return np.frombuffer(values, dtype=np.int64) if values else np.zeros(0, dtype=np.int64)
