"""Equal slices of a run's window, and how much of each slice intervals cover."""

import numpy as np

from stageline.cost.arrays import IntArray


class Bins:
    """`count` slices of ceil(window / count) ns each; sums are exact integers of ns."""

    def __init__(self, start_ns: int, window_ns: int, count: int) -> None:
        self.start_ns, self.count = start_ns, count
        self.width_ns = max(1, -(-window_ns // count))

    def empty(self) -> IntArray:
        """Nothing covered yet."""
        return np.zeros(self.count, dtype=np.int64)

    def cover(self, into: IntArray, begin_ns: IntArray, end_ns: IntArray, weights: IntArray | None = None) -> None:
        """Adds the part of each interval [begin, end) that lies in each slice, times the interval's weight (default 1).

        Intervals lie inside the window.
        """
        kept = end_ns > begin_ns
        begin, end = begin_ns[kept] - self.start_ns, end_ns[kept] - self.start_ns
        weight = np.ones_like(begin) if weights is None else weights[kept]
        first, last = begin // self.width_ns, (end - 1) // self.width_ns
        one = first == last
        np.add.at(into, first[one], ((end - begin) * weight)[one])
        first, last, begin, end, weight = first[~one], last[~one], begin[~one], end[~one], weight[~one]
        np.add.at(into, first, ((first + 1) * self.width_ns - begin) * weight)
        np.add.at(into, last, (end - last * self.width_ns) * weight)
        steps = np.zeros(self.count + 1, dtype=np.int64)
        np.add.at(steps, first + 1, self.width_ns * weight)
        np.add.at(steps, last, -self.width_ns * weight)
        into += np.cumsum(steps)[: self.count]

    def peaks(self, at_ns: IntArray, values: IntArray) -> IntArray:
        """The largest value of a step function in each slice; values[i] holds from at[i] on, 0 before."""
        slot = np.clip((at_ns - self.start_ns) // self.width_ns, 0, self.count - 1)
        peaks = self.empty()
        np.maximum.at(peaks, slot, values)
        last = np.full(self.count, -1, dtype=np.int64)
        np.maximum.at(last, slot, np.arange(len(slot)))
        newest = np.maximum.accumulate(last)  # the last change up to the end of each slice
        ends = np.where(newest >= 0, values[np.maximum(newest, 0)] if len(values) else 0, 0)
        entering = np.concatenate(([0], ends[:-1]))
        result: IntArray = np.maximum(peaks, entering)
        return result
