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
class Way:
    """What a microbatch brings from its previous visit; at visit 0 the end is its dispatch (rule 7)."""

    prev_end_ns: int
    chunk_wait_ns: int = 0
    pace_ns: int = 0


@dataclass(frozen=True, slots=True)
class Passing:
    """The last service of a stage, as far as rule 7 asks for it."""

    visit: int
    microbatch: Microbatch
    service_ns: int
    late_ns: int  # min(lag, gap)
    chunk_wait_ns: int  # passed on


@dataclass(frozen=True, slots=True)
class Gap:
    """An idle interval [start, end) before a service that was not the stage's first."""

    start_ns: int
    end_ns: int
    microbatch: Microbatch
    visit: int
    prev_end_ns: int  # end of the microbatch's previous visit; its dispatch at visit 0
    chunk_wait_ns: int  # both as they explain the gap
    lag_ns: int


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
    last: Passing | None = None
    service_ns: dict[int, int] = field(default_factory=dict)  # by visit: of the microbatch served there last
    prefills: set[int] = field(default_factory=set)  # numbers of the microbatches with prefill tokens
    visits: list[int] = field(init=False)  # of the route, in route order

    def __post_init__(self) -> None:
        self.visits = [v for v, visit in enumerate(self.plan.visits) if visit.stage == self.stage]

    def serve(self, visit: int, arrival_ns: int, microbatch: Microbatch, way: Way) -> Way:
        """Serve one microbatch; returns what it brings to the next visit."""
        free_ns = self.log[-1].end_ns if self.log else 0
        start_ns = max(free_ns, arrival_ns)
        end_ns = start_ns + self.services.service_ns(visit, microbatch)
        passed_on = self.explain(visit, arrival_ns, end_ns, microbatch, way)
        self.log.append(Service(visit, microbatch.number, arrival_ns, start_ns, end_ns))
        if visit == self.visits[0]:
            self.apply(microbatch)
        return passed_on

    def explain(self, visit: int, arrival_ns: int, end_ns: int, microbatch: Microbatch, way: Way) -> Way:
        """Why it was not here yet (rule 7): notes the gap before it, if there is one, and what it passes on."""
        free_ns, last = self.log[-1].end_ns if self.log else 0, self.last
        gap_ns, queued_ns = max(0, arrival_ns - free_ns), max(0, free_ns - arrival_ns)
        service_ns, before_ns = end_ns - max(free_ns, arrival_ns), self.service_ns.get(visit, 0)
        lag_ns = max(0, way.pace_ns - before_ns)
        if last is not None and gap_ns:
            causes_ns = (way.chunk_wait_ns, lag_ns)
            if last.microbatch is microbatch:
                causes_ns = (max(0, way.chunk_wait_ns - last.chunk_wait_ns), max(0, lag_ns - last.late_ns))
            self.gaps.append(Gap(free_ns, arrival_ns, microbatch, visit, way.prev_end_ns, *causes_ns))
        own_ns = max(0, service_ns - before_ns) if microbatch.prefills else 0
        behind_chunk = last is not None and last.microbatch.prefills and last.visit != visit
        wait_ns = min(queued_ns, last.service_ns) if last is not None and behind_chunk else 0
        chunk_wait_ns, late_ns = min(way.chunk_wait_ns, gap_ns) + own_ns + wait_ns, min(lag_ns, gap_ns)
        self.last = Passing(visit, microbatch, service_ns, late_ns, chunk_wait_ns)
        self.service_ns[visit] = service_ns
        if microbatch.prefills:
            self.prefills.add(microbatch.number)
        return Way(end_ns, chunk_wait_ns, late_ns + before_ns)

    def apply(self, microbatch: Microbatch) -> None:
        """Releases, then allocations, then the peak."""
        self.release(microbatch.releases)
        for index, tokens, cached_blocks in microbatch.grants:
            self.ledger.held[index], self.ledger.shared[index] = tokens, cached_blocks
        for member in microbatch.members:
            self.ledger.held[member.sequence.index] = member.held_tokens
            self.ledger.shared[member.sequence.index] = member.cached_blocks
        self.ledger.cached = microbatch.cached
        self.kv_peak_bytes = max(self.kv_peak_bytes, self.ledger.used_bytes())

    def release(self, indices: tuple[int, ...]) -> None:
        """Give back all that these sequences hold."""
        for index in indices:
            del self.ledger.held[index], self.ledger.shared[index]
