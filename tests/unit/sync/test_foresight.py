"""The router's copy of the stages: what is in flight comes back exactly when it says."""

import random
from collections.abc import Iterable

import pytest

from stageline.engine.conductor import Conductor
from stageline.engine.heap_pipeline import HeapPipeline
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet, one_pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import NEVER, Cancellation, Request, RequestRecord
from stageline.errors import LawBroken
from stageline.sync.foresight import MAX_AHEAD, ForesightedConductor
from tests.property.fleet_scenarios import fleet_numbered
from tests.reference.plans import pipeline
from tests.reference.strategies import Scenario, build


class Open:
    """A workload whose future opens step by step, as wall time would open it."""

    reactive = False

    def __init__(self, requests: list[Request | Cancellation], step_ns: int) -> None:
        self._requests, self._step_ns, self.edge_ns = requests, step_ns, step_ns

    def next_arrival_ns(self) -> int | None:
        """See Workload."""
        if not self._requests:
            return None
        first = self._requests[0]
        next_ns = first.at_ns if isinstance(first, Cancellation) else first.arrival_ns
        return next_ns if next_ns < self.edge_ns else None

    def horizon_ns(self) -> int:
        """See Workload."""
        return self.edge_ns if self._requests else NEVER

    def take(self) -> Request | Cancellation:
        """See Workload."""
        return self._requests.pop(0)

    def finished(self, index: int, now_ns: int) -> None:
        """See Workload."""

    def open(self) -> None:
        """The next edge."""
        self.edge_ns += self._step_ns


class Records:
    """An observer."""

    def __init__(self) -> None:
        self.seen: list[RequestRecord] = []

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self.seen.append(record)


class Late(ForesightedConductor):
    """Its driver's clock is far ahead of the frames, which come back some turns late."""

    def __init__(self, router: Router, workload: Open, seed: int) -> None:
        super().__init__(router, workload, seed, ahead_ns=1 << 40)
        self._workload, self._turn = workload, 0
        self._out: list[tuple[int, int, list[int]]] = []
        self.most_ahead = 0

    def advance(self) -> None:
        """The clock is where the workload's future begins."""
        self._turn += 1
        while self._out and self._out[0][0] < self._turn:
            _, replica, arrivals_ns = self._out.pop(0)
            super().returned(replica, arrivals_ns)
        self.reached_ns = min(self._workload.edge_ns, NEVER - 1)
        super().advance()
        self.most_ahead = max(self.most_ahead, *map(len, self.unconfirmed))

    def returned(self, replica: int, arrivals_ns: Iterable[int]) -> None:
        """Later."""
        self._out.append((self._turn + 3, replica, list(arrivals_ns)))


def drive(scenario: Scenario, kind: type[Conductor], step_ns: int) -> list[RequestRecord]:
    """One run, its stages next door; completions come back as they are served there."""
    return finished(scenario, kind, step_ns)[1]


def finished(scenario: Scenario, kind: type[Conductor], step_ns: int) -> tuple[Conductor, list[RequestRecord]]:
    """See `drive`."""
    fleet = one_pool(Route(scenario.plan), scenario.scheduling)
    return finished_fleet(fleet, list(scenario.users[0]), scenario.seed, kind, step_ns)


def finished_fleet(
    fleet: ServedFleet, events: list[Request | Cancellation], seed: int, kind: type[Conductor], step_ns: int
) -> tuple[Conductor, list[RequestRecord]]:
    """See `drive`."""
    records = Records()
    router = Router(fleet, seed, records)
    workload = Open(events, step_ns)
    extra = () if kind is Conductor else (seed,)
    conductor = kind(router, workload, *extra)
    replicas = range(fleet.replicas)
    stages = [HeapPipeline(route, r, seed) for r, route in enumerate(fleet.routes)]
    for _ in range(100_000):
        conductor.advance()
        for r in replicas:
            conductor.returned(r, stages[r].feed(conductor.dispatched[r]))
            conductor.dispatched[r] = []
        if conductor.done:
            return conductor, sorted(records.seen, key=lambda record: record.index)
        for r in replicas:
            until = conductor.next_event_ns(r)
            while stages[r].next_ns < until and not conductor.returns[r]:
                completion = stages[r].step()
                if completion is not None:
                    conductor.returned(r, [completion])
            if conductor.waits_for(r) and kind is not Late:  # a promise does not overtake what is on its way
                bound = min(NEVER, stages[r].next_ns + 1)
                conductor.promise(r, bound)
        workload.open()
    raise AssertionError("stuck")


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_future_that_opens_slowly_changes_no_record(first: int) -> None:
    for number in range(first, first + 20):
        scenario = build(random.Random(number))
        if scenario.starts_ns:
            continue
        last_ns = max((r.arrival_ns for r in scenario.users[0]), default=0)
        step_ns = 1 + last_ns // random.Random(number).randint(1, 50)
        foreseen = drive(scenario, ForesightedConductor, step_ns)
        assert foreseen == drive(scenario, Conductor, NEVER), number


def test_running_ahead_of_the_frames_changes_no_record() -> None:
    most_ahead = 0
    for number in range(40):
        scenario = build(random.Random(number))
        if scenario.starts_ns:
            continue
        conductor, seen = finished(scenario, Late, 1 + 10 ** random.Random(number).randint(3, 8))
        assert seen == drive(scenario, Conductor, NEVER), number
        assert isinstance(conductor, Late)
        most_ahead = max(most_ahead, conductor.most_ahead)
    assert 10 < most_ahead <= MAX_AHEAD


@pytest.mark.parametrize("kind", ["handover", "handover-leaving", "handover-crowded"])
def test_what_replicas_hand_over_is_foreseen(kind: str) -> None:
    """However slowly the future opens and however late frames are: what one replica does may decide what others do."""
    most_ahead = 0
    for number in range(20):
        scenario = fleet_numbered(kind, number)
        if not scenario.is_open:
            continue

        def seen(of: type[Conductor], step_ns: int) -> tuple[Conductor, list[RequestRecord]]:
            return finished_fleet(scenario.served(), scenario.events(), scenario.seed, of, step_ns)  # noqa: B023

        _, wanted = seen(Conductor, NEVER)
        step_ns = 1 + 10 ** random.Random(number).randint(2, 6)
        assert seen(ForesightedConductor, step_ns)[1] == wanted, number
        late, found = seen(Late, step_ns)
        assert found == wanted, number
        assert isinstance(late, Late)
        most_ahead = max(most_ahead, late.most_ahead)
    assert most_ahead > 10


def test_it_runs_ahead_so_far_and_no_further() -> None:
    one = Request(index=0, arrival_ns=5, prompt_tokens=3, output_tokens=9, max_output_tokens=9)
    router = Router(one_pool(Route(pipeline([10, 20], latency_ns=1)), Scheduling()), 0, Records())
    conductor = ForesightedConductor(router, Open([one], NEVER), 0, ahead_ns=70)
    conductor.advance()
    assert conductor.foreseen_ns == 38
    conductor.reached_ns = 37
    conductor.advance()
    assert router.sequences[0].generated == 0
    conductor.reached_ns = 38
    conductor.advance()
    assert (router.sequences[0].generated, conductor.foreseen_ns, conductor.overdue_ns) == (1, 71, 38)
    conductor.reached_ns = 1000
    conductor.advance()
    assert (router.sequences[0].generated, conductor.foreseen_ns, conductor.overdue_ns) == (3, NEVER, 38)
    conductor.returned(0, [38])
    conductor.advance()
    assert (router.sequences[0].generated, conductor.overdue_ns) == (4, 71)
    with pytest.raises(LawBroken, match="came back at 72 ns, predicted was 71 ns"):
        conductor.returned(0, [72])


def test_another_time_than_foreseen_breaks_a_law() -> None:
    one = Request(index=0, arrival_ns=5, prompt_tokens=3, output_tokens=2, max_output_tokens=2)
    router = Router(one_pool(Route(pipeline([10, 20], latency_ns=1)), Scheduling()), 0, Records())
    conductor = ForesightedConductor(router, Open([one], NEVER), 0)
    conductor.advance()
    assert conductor.bound_ns(0) == conductor.overdue_ns == 5 + 10 + 20 + 3
    Conductor.returned(conductor, 0, [39])
    with pytest.raises(LawBroken, match="came back at 39 ns, predicted was 38 ns"):
        conductor.advance()
