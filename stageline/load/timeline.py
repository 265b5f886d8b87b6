"""A run over time, for charts: at most MAX_SLICES equal slices, which double in length as the run grows."""

import msgspec

from stageline.load.sample import Sample
from stageline.units import NS_PER_S

MAX_SLICES = 240
_FIRST_NS = NS_PER_S // 4


class Slice(msgspec.Struct):
    """Calls that ended in the slice; `due`: calls that were due to begin in it; tokens that came in it."""

    due: int = 0
    finished: int = 0
    failed: int = 0
    output_tokens: int = 0
    ttft_sum_ns: int = 0
    ttft_max_ns: int = 0

    def merge(self, other: "Slice") -> None:
        """Adds the next slice to this one."""
        self.due += other.due
        self.finished += other.finished
        self.failed += other.failed
        self.output_tokens += other.output_tokens
        self.ttft_sum_ns += other.ttft_sum_ns
        self.ttft_max_ns = max(self.ttft_max_ns, other.ttft_max_ns)


class LoadTimeline:
    """Slices of `slice_ns` of wall time from the start of the run."""

    def __init__(self) -> None:
        self.slice_ns = _FIRST_NS
        self.slices: list[Slice] = []

    def add(self, sample: Sample) -> None:
        """Adds one call, warm-up included, without its tokens."""
        self._at(sample.intended_ns).due += 1
        ended = self._at(sample.end_ns)
        times = sample.wall_times()
        if times is None:
            ended.failed += 1
            return
        ended.finished += 1
        ended.ttft_sum_ns += times.ttft_ns
        ended.ttft_max_ns = max(ended.ttft_max_ns, times.ttft_ns)

    def credit(self, time_ns: int, tokens: int) -> None:
        """Adds tokens when they come."""
        self._at(time_ns).output_tokens += tokens

    def _at(self, time_ns: int) -> Slice:
        position = max(0, time_ns) // self.slice_ns
        while position >= MAX_SLICES:
            self._merge_pairs()
            position //= 2
        while len(self.slices) <= position:
            self.slices.append(Slice())
        return self.slices[position]

    def _merge_pairs(self) -> None:
        for left, right in zip(self.slices[::2], self.slices[1::2], strict=False):
            left.merge(right)
        self.slices = self.slices[::2]
        self.slice_ns *= 2
