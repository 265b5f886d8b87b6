"""Rule 7 for a batch of microbatches on a route that visits every stage once: `attribution` with arrays.

Arrays are (visits, microbatches), in ns. What visits of one cost entry share is one object: rows are compared by
identity.
"""

from collections.abc import Sequence as Seq
from typing import NamedTuple

import numpy as np

from stageline.cost.arrays import IntArray
from stageline.engine.attribution import ROUTER_CAUSES, router_ends, way_ends
from stageline.engine.causes import GAP_CAUSES

TRANSFER = GAP_CAUSES.index("transfer")
CELLS = 1 << 14  # are split at once: a few arrays of that many stay in a core's cache


class Stamps(NamedTuple):
    """The stamps of rule 7 of each microbatch, as `Microbatch` names them."""

    dispatch_ns: IntArray
    work_since_ns: IntArray
    empty_since_ns: IntArray
    credit_since_ns: IntArray
    transfer_wait_ns: IntArray | int  # 0 where it is 0 for all


class Services(NamedTuple):
    """What a visit takes for each microbatch, and what it took for the one before."""

    services: IntArray
    lasts: IntArray


class Lateness:
    """(chunk_wait, lag) of each microbatch at each visit, as `attribution.Lateness` has them."""

    def __init__(self, visits: Seq[Services], prefill: IntArray, before: IntArray, starts: IntArray) -> None:
        """`prefill`: prefill tokens of each microbatch; `before`: when the stage was free, no later than `starts`."""
        self._chunks = np.flatnonzero(prefill)  # all others have no chunk_wait
        self._waits = self._lags = None
        if len(self._chunks):
            columns = self._chunks
            own = np.array([v.services[columns] - v.lasts[columns] for v in visits])
            self._waits = _chunk_waits(np.maximum(own, 0), starts[:, columns] - before[:, columns])
        if any(v is not visits[0] for v in visits):
            self._lags = _lags([v.lasts for v in visits], before, starts)

    def of(self, rows: slice, shape: tuple[int, ...]) -> tuple[IntArray | int, IntArray | int]:
        """Both for some of the visits; 0 where all are."""
        lags = 0 if self._lags is None else self._lags[rows]
        if self._waits is None:
            return 0, lags
        waits = np.zeros(shape, np.int64)
        waits[:, self._chunks] = self._waits[rows]
        return waits, lags


def _chunk_waits(own: IntArray, gaps: IntArray) -> IntArray:
    """On the way down chunk_wait' = min(chunk_wait, gap) + own.

    With C the sum of `own` above a visit, that is C + min(0, min of gap - C over the visits above).
    """
    waits, above = np.zeros_like(gaps), np.cumsum(own, axis=0)
    waits[1:] = np.minimum(np.minimum.accumulate(gaps - above + own, axis=0), 0)[:-1] + above[:-1]
    return waits


def _lags(lasts: Seq[IntArray], before: IntArray, starts: IntArray) -> IntArray:
    """On the way down lag' = max(0, min(lag, gap) + what the services of the microbatch before fall by)."""
    lags = np.zeros_like(starts)
    for visit in range(len(starts) - 1):
        lag = lags[visit + 1]
        np.minimum(lags[visit], starts[visit] - before[visit], out=lag)
        if lasts[visit] is not lasts[visit + 1]:
            lag += lasts[visit] - lasts[visit + 1]
            np.maximum(lag, 0, out=lag)
    return lags


def split_gaps(stamps: Stamps, ends: IntArray, starts: IntArray, late: Lateness, first: int) -> IntArray:
    """Of the visits from `first` on, by visit and cause: the parts of the gaps of all microbatches, summed up.

    `ends` has a row for the dispatch above those of the visits, and a column for the microbatch before the first; a
    sum of times may exceed 64 bits, but the difference of two such sums, modulo 2**64, is right.
    """
    prev_ends, before = ends[:-1, 1:], ends[1:, :-1]
    causes = way_ends(prev_ends, late.of(slice(first, first + len(starts)), starts.shape), starts)
    cause, sums = ROUTER_CAUSES, np.zeros((len(starts), len(GAP_CAUSES)), np.int64)
    if (before < stamps.dispatch_ns).any():  # else all had left the router before the gaps
        causes, cause = router_ends(stamps, np.maximum) + causes, 0
    mark, so_far = before, before.sum(axis=1)
    for stamp in causes:
        if cause == TRANSFER and isinstance(stamps.transfer_wait_ns, int):
            cause += 1
            continue
        mark = np.minimum(np.maximum(stamp, mark), starts)
        upto = mark.sum(axis=1)
        sums[:, cause] = upto - so_far
        so_far = upto
        cause += 1
    return sums
