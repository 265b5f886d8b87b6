"""requests.jsonl as the page draws it: the queue over time, the distribution of latencies, the waterfall."""

from collections.abc import Sequence

import msgspec
import numpy as np

from stageline.cost.arrays import IntArray
from stageline.engine.types import HandOverRecord, RequestRecord
from stageline.report.page.bins import Bins
from stageline.report.page.columns import Packer
from stageline.report.request_times import times_of
from stageline.report.statistics import REQUEST_OUTCOMES

MAX_WATERFALL_ROWS = 3000  # of a longer run every n-th request is drawn
QUANTILES = 200
QUANTILE_NAMES = ("ttft", "tpot", "e2e", "queue")


class WaterfallRows(msgspec.Struct, frozen=True):
    """How much of the run the waterfall shows: `rows` requests, one of `every`."""

    rows: int
    every: int


def pack_requests(records: Sequence[RequestRecord], bins: Bins, packer: Packer) -> WaterfallRows:
    """The columns `queue.*`, `quantile.*` and `request.*`. Times are since the start of the window."""
    _queue(records, bins, packer)
    _quantiles(records, packer)
    ordered = sorted(records, key=lambda r: (r.arrival_ns, r.index))
    every = max(1, -(-len(ordered) // MAX_WATERFALL_ROWS))
    shown = ordered[::every]
    start = bins.start_ns
    packer.add("request.index", _ints([r.index for r in shown]))
    packer.add("request.arrival", _ints([r.arrival_ns - start for r in shown]))
    for name in ("admitted", "first_token", "last_token"):  # 0: it did not happen; otherwise ns since arrival, plus 1
        times = [(getattr(r, f"{name}_ns"), r.arrival_ns) for r in shown]
        packer.add(f"request.{name}", _ints([0 if t is None else t - arrival + 1 for t, arrival in times]))
    for name in ("prompt_tokens", "output_tokens", "preemptions"):
        packer.add(f"request.{name}", _ints([getattr(r, name) for r in shown]))
    packer.add("request.replica", _ints([0 if r.replica is None else r.replica for r in shown]))
    if any(r.hand_over is not None for r in shown):
        _hand_overs(shown, packer)
    packer.add("request.outcome", _ints([REQUEST_OUTCOMES.index(r.outcome) for r in shown]))
    return WaterfallRows(len(shown), every)


def _hand_overs(shown: Sequence[RequestRecord], packer: Packer) -> None:
    """Times as above; `request.decode_replica` is 0 for none, otherwise its number plus 1."""
    sent, landed, replicas = list[int](), list[int](), list[int]()
    for record in shown:
        moved = record.hand_over or HandOverRecord()
        sent.append(0 if moved.start_ns is None else moved.start_ns - record.arrival_ns + 1)
        landed.append(0 if moved.landed_ns is None else moved.landed_ns - record.arrival_ns + 1)
        replicas.append(0 if moved.decode_replica is None else moved.decode_replica + 1)
    for name, values in (("sent", sent), ("landed", landed), ("decode_replica", replicas)):
        packer.add(f"request.{name}", _ints(values))


def _queue(records: Sequence[RequestRecord], bins: Bins, packer: Packer) -> None:
    """Peaks of waiting and running in each slice. A preempted request counts as running until its last token."""
    admitted = [r for r in records if r.admitted_ns is not None]
    ended = [r for r in admitted if r.last_token_ns is not None]
    arrivals = _ints(sorted(r.arrival_ns for r in records if r.admitted_ns is not None or r.outcome == "incomplete"))
    admissions = _ints(sorted(r.admitted_ns or 0 for r in admitted))
    ends = _ints(sorted(r.last_token_ns or 0 for r in ended))
    packer.add("queue.waiting", _peaks(bins, arrivals, admissions))
    packer.add("queue.running", _peaks(bins, admissions, ends))


def _peaks(bins: Bins, up_ns: IntArray, down_ns: IntArray) -> IntArray:
    """Peaks in each slice of a counter that steps up and down at these times."""
    at = np.unique(np.concatenate((up_ns, down_ns)))
    held = np.searchsorted(up_ns, at, side="right") - np.searchsorted(down_ns, at, side="right")
    return bins.peaks(at, held.astype(np.int64))


def _quantiles(records: Sequence[RequestRecord], packer: Packer) -> None:
    """Nearest-rank quantiles at 1/QUANTILES, 2/QUANTILES, ... of finished requests."""
    times = [t for t in map(times_of, records) if t is not None]
    for name in QUANTILE_NAMES:
        values = np.sort(_ints([v for t in times if (v := getattr(t, f"{name}_ns")) is not None]))
        ranks = -(-np.arange(1, QUANTILES + 1) * len(values) // QUANTILES)
        packer.add(f"quantile.{name}", values[np.maximum(ranks, 1) - 1] if len(values) else values)


def _ints(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
