"""How many requests of each group are in flight in each slice of the run, from microbatches.jsonl and events.jsonl."""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from stageline.report.events import Served, StageEvent
from stageline.report.groups import Parts
from stageline.report.page.bins import Bins
from stageline.report.page.columns import Packer

MAX_CELLS = 200_000  # groups x slices
SCALE = 10  # of the packed numbers: tenths of a request


class GroupSizes:
    """Replica 0. A microbatch is in flight from its start at the first visit to its end at the last one."""

    def __init__(self, parts: Parts, last_visit: int) -> None:
        self._parts, self._last_visit = parts, last_visit
        self._starts: dict[int, int] = {}  # of microbatches that are under way
        self._spans = tuple(array("q") for _ in range(4))  # group, begin, end, requests

    def watch(self, events: Iterable[StageEvent]) -> Iterator[StageEvent]:
        """The same events, seen on the way."""
        for event in events:
            if isinstance(event, Served) and event.replica == 0:
                self._served(event)
            yield event

    def _served(self, event: Served) -> None:
        if event.visit == 0:
            self._starts[event.number] = event.start_ns
        if event.visit == self._last_visit:
            part = self._parts.get((0, event.number))
            begin_ns = self._starts.pop(event.number, None)
            if part is not None and begin_ns is not None:
                for column, value in zip(self._spans, (part.group, begin_ns, event.end_ns, part.requests), strict=True):
                    column.append(value)

    def pack(self, bins: Bins, packer: Packer) -> int:
        """The column `groups`, one group after the other, in tenths of a request. Returns how many groups there are."""
        if not self._spans[0]:
            return 0
        group, begin, end, requests = (np.frombuffer(column, dtype=np.int64) for column in self._spans)
        groups = int(group.max()) + 1
        if groups * bins.count > MAX_CELLS:
            return 0
        rows = []
        for own in (group == g for g in range(groups)):
            row = bins.empty()
            bins.cover(row, begin[own], end[own], requests[own])
            rows.append((row * SCALE + bins.width_ns // 2) // bins.width_ns)
        packer.add("groups", np.concatenate(rows))
        return groups
