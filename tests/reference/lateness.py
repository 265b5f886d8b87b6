"""Rule 7: why a microbatch was not here yet, found from the stages' logs once the run is over."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from tests.reference.stage import Gap, Service, Stage

Place = tuple[int, int]  # visit, microbatch number


@dataclass(frozen=True, slots=True)
class Late:
    """Nanoseconds by which a microbatch comes later than the one before it left."""

    lag_ns: int = 0  # because earlier stages take longer
    chunk_ns: int = 0  # because of prefill chunks


@dataclass(slots=True)
class Lateness:
    """All services of one replica."""

    stages: Sequence[Stage]
    services: dict[Place, Service] = field(default_factory=dict)
    before: dict[Place, Service | None] = field(default_factory=dict)  # the service before it on its stage
    prefills: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for stage in self.stages:
            for before, service in zip(chain([None], stage.log), stage.log, strict=False):
                self.services[service.visit, service.number] = service
                self.before[service.visit, service.number] = before
            self.prefills |= stage.prefills

    def service_ns(self, visit: int, number: int) -> int:
        """S(v, n)."""
        if number < 0:
            return 0
        service = self.services[visit, number]
        return service.end_ns - service.start_ns

    def idle_ns(self, visit: int, number: int) -> int:
        """How long the stage had been free when it came; from time 0 on if it was the first."""
        before = self.before[visit, number]
        return max(0, self.services[visit, number].arrival_ns - (before.end_ns if before else 0))

    def by_chunks_here_ns(self, visit: int, number: int) -> int:
        """What its own chunk takes longer than the microbatch before it, and what it waits behind another visit's."""
        found_ns = 0
        if number in self.prefills:
            found_ns += max(0, self.service_ns(visit, number) - self.service_ns(visit, number - 1))
        before = self.before[visit, number]
        if before is not None and before.visit != visit and before.number in self.prefills:
            arrival_ns = self.services[visit, number].arrival_ns
            found_ns += max(0, before.end_ns - max(before.start_ns, arrival_ns))
        return found_ns

    def reached(self, visit: int, number: int) -> Late:
        """The sums over the visits so far, less what a stage that was busy has made up for."""
        lag_ns = chunk_ns = 0
        for v in range(visit):
            idle_ns = self.idle_ns(v, number)
            falls_ns = self.service_ns(v, number - 1) - self.service_ns(v + 1, number - 1)
            lag_ns = max(0, min(lag_ns, idle_ns) + falls_ns)
            chunk_ns = min(chunk_ns, idle_ns) + self.by_chunks_here_ns(v, number)
        return Late(lag_ns, chunk_ns)

    def of_gap(self, gap: Gap) -> Late:
        """What explains the gap: all of it, or what was met since the microbatch was last here."""
        number, reached = gap.microbatch.number, self.reached(gap.visit, gap.microbatch.number)
        before = self.before[gap.visit, number]
        if before is None or before.number != number:
            return reached
        lag_ns = min(self.reached(before.visit, number).lag_ns, self.idle_ns(before.visit, number))
        chunk_ns = self.reached(before.visit + 1, number).chunk_ns
        return Late(max(0, reached.lag_ns - lag_ns), max(0, reached.chunk_ns - chunk_ns))
