"""Rule 1: a stage serves one microbatch at a time, in the order of arrival."""

from dataclasses import dataclass, field

from stageline.cost.service import ServiceModel, compile_cost
from stageline.engine.rng import STREAM_EXPERTS, draw
from stageline.plan.schema import Plan
from tests.reference.ledger import Ledger
from tests.reference.sequence import Microbatch


@dataclass(slots=True)
class Services:
    """Service times of every visit (rule 3)."""

    plan: Plan
    seed: int
    models: list[ServiceModel] = field(init=False)

    def __post_init__(self) -> None:
        self.models = [compile_cost(entry) for entry in self.plan.costs]

    def service_ns(self, visit: int, microbatch: Microbatch) -> int:
        """A pure function of the microbatch's totals, its number and the visit's entry."""
        model = self.models[self.plan.visits[visit].cost]
        number = 0
        if model.uses_draw:
            number = draw(self.seed, STREAM_EXPERTS, microbatch.replica, visit, microbatch.number)
        ns = model.service_ns(microbatch.totals(), number)
        assert ns >= self.plan.visits[visit].min_service_ns >= 1, (visit, ns)
        return ns


@dataclass(frozen=True, slots=True)
class Service:
    """One line of a stage's log."""

    visit: int
    number: int
    arrival_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Gap:
    """An idle interval [start, end) before a service that was not the stage's first."""

    start_ns: int
    end_ns: int
    microbatch: Microbatch
    prev_end_ns: int  # end of the microbatch's previous visit; its dispatch at visit 0


@dataclass(slots=True)
class Stage:
    """One stage of one replica."""

    plan: Plan
    stage: int
    services: Services
    ledger: Ledger
    log: list[Service] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    kv_peak_bytes: int = 0
    visits: list[int] = field(init=False)  # of the route, in route order

    def __post_init__(self) -> None:
        self.visits = [v for v, visit in enumerate(self.plan.visits) if visit.stage == self.stage]

    def serve(self, visit: int, arrival_ns: int, microbatch: Microbatch, prev_end_ns: int) -> int:
        """Serve one microbatch; returns the end of the service."""
        if not self.log:
            start_ns = arrival_ns
        else:
            free_ns = self.log[-1].end_ns
            start_ns = max(free_ns, arrival_ns)
            if start_ns > free_ns:
                self.gaps.append(Gap(free_ns, start_ns, microbatch, prev_end_ns))
        end_ns = start_ns + self.services.service_ns(visit, microbatch)
        self.log.append(Service(visit, microbatch.number, arrival_ns, start_ns, end_ns))
        if visit == self.visits[0]:
            self.apply(microbatch)
        return end_ns

    def apply(self, microbatch: Microbatch) -> None:
        """Releases, then allocations, then the peak."""
        self.release(microbatch.releases)
        for member in microbatch.members:
            self.ledger.held[member.sequence.index] = member.held_tokens
            self.ledger.shared[member.sequence.index] = member.cached_blocks
        self.ledger.cached_blocks, self.ledger.snapshots = microbatch.cached
        self.kv_peak_bytes = max(self.kv_peak_bytes, self.ledger.used_bytes())

    def release(self, indices: tuple[int, ...]) -> None:
        """Give back all that these sequences hold."""
        for index in indices:
            del self.ledger.held[index], self.ledger.shared[index]
