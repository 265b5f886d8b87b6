"""Whatever stalls, emulated time waits: no latency changes, no idle time appears, and the replay is equal."""

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stageline.engine import inprocess
from stageline.engine.closing import window_of
from stageline.engine.fleet import Fleet, HandOver, Order, Pool
from stageline.engine.route import Route
from stageline.engine.served import ServedFleet, one_pool, serve
from stageline.engine.settings import Scheduling
from stageline.engine.types import RequestRecord
from stageline.plan.schema import Plan
from stageline.sync.resumed import Resumed
from stageline.testing import ListWorkload, Recorder, uniform_plan
from tests.unit.router.live.stalls import HOP_NS, MS, QUANTUM_NS, TOLERANCE_NS, Cluster, Stall

OUTPUT = 6
ROUTES = ((0, 1, 2), (0, 1, 2, 1, 0))


def plan_of(visits: tuple[int, ...]) -> Plan:
    """Three stages of 2 ms."""
    numbers = {"service_ns": 2 * MS, "latency_ns": 20_000, "bytes_per_s": 10**10, "bytes_per_token": 64}
    return uniform_plan(3, route=visits, kv_budget_bytes=1 << 20, kv_block_bytes=64, credits=2, **numbers)


def alone(visits: tuple[int, ...]) -> ServedFleet:
    """One replica."""
    return one_pool(Route(plan_of(visits)), Scheduling())


def handing_over(order: Order, visits: tuple[int, ...]) -> ServedFleet:
    """A block takes 19.2 ms from the prefill replica to a decode replica, and 7 ms more until it can be used."""
    pools = (
        Pool(name="prefill", plan=plan_of(ROUTES[0]), role="prefill"),
        Pool(name="decode", plan=msgspec.structs.replace(plan_of(visits), replicas=2), role="decode"),
    )
    return serve(Fleet(pools=pools, hand_over=HandOver(bytes_per_s=10_000, latency_ns=7 * MS, order=order)))


class User(Recorder):
    """Sends the next request as soon as the last one has been delivered."""

    def __init__(self, requests: int) -> None:
        super().__init__()
        self.cluster: Cluster | None = None
        self._left = requests

    def start(self, cluster: Cluster) -> None:
        """The first one."""
        self.cluster = cluster
        cluster.at(0, self._next)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        super().request(record)
        cluster = self.cluster
        assert cluster is not None
        assert record.last_token_ns is not None
        cluster.at(max(cluster.wall_ns, cluster.clock.wall_ns(record.last_token_ns)), self._next)

    def more(self, requests: int) -> None:
        """So many more, from now on."""
        assert self.cluster is not None
        self._left = requests
        self.cluster.at(self.cluster.wall_ns, self._next)

    def _next(self) -> None:
        if self._left:
            self._left -= 1
            assert self.cluster is not None
            self.cluster.submit(8, OUTPUT)


def served(fleet: ServedFleet, stalls: list[Stall], requests: int = 4) -> tuple[Cluster, User]:
    """One user's requests, one after the other."""
    user = User(requests)
    cluster = Cluster(fleet, user, stalls)
    user.start(cluster)
    cluster.run(lambda: len(user.requests) == requests)
    return cluster, user


def latencies_ns(user: User) -> list[int]:
    return [r.last_token_ns - r.arrival_ns for r in user.requests]


LENGTHS_NS = [ms * MS for ms in (5, 30, 300, 3_000, 60_000)]
STALLS = st.lists(
    st.builds(Stall, st.integers(-1, 2), st.integers(0, 150).map(lambda ms: ms * MS), st.sampled_from(LENGTHS_NS)),
    max_size=5,
)


@pytest.mark.parametrize("visits", ROUTES)
@settings(deadline=None, max_examples=60)
@given(stalls=STALLS)
def test_stalls_change_no_latency_and_make_no_idle_time(visits: tuple[int, ...], stalls: list[Stall]) -> None:
    calm, undisturbed = served(alone(visits), [])
    cluster, user = served(alone(visits), stalls)
    assert latencies_ns(user) == latencies_ns(undisturbed)
    spare_ns = (TOLERANCE_NS + 2 * QUANTUM_NS + 8 * HOP_NS) * (1 + len(stalls))
    start_ns, end_ns = window_of(cluster.conductor)
    calm_start_ns, calm_end_ns = window_of(calm.conductor)
    assert end_ns - start_ns <= calm_end_ns - calm_start_ns + spare_ns
    for number, stage in enumerate(cluster.stages):
        idle = stage.stage.record(start_ns, end_ns).idle_ns
        calm_idle = calm.stages[number].stage.record(calm_start_ns, calm_end_ns).idle_ns
        assert all(idle[cause] <= calm_idle[cause] + spare_ns for cause in idle)
    replay = Recorder()
    inprocess.run_fleet(cluster.fleet, ListWorkload(cluster.arrived), seed=0, observer=replay)
    assert replay.requests == user.requests


@pytest.mark.parametrize("order", ["source-first", "destination-first"])
@pytest.mark.parametrize("visits", ROUTES)
def test_the_router_wakes_for_what_is_due_to_itself(order: Order, visits: tuple[int, ...]) -> None:
    """While KV is under way nothing is in flight: no frame wakes the router, and none is overdue."""
    cluster, user = served(handing_over(order, visits), [])
    trips_ns = [cluster.fleet.route(r).trip_ns for r in (0, 1)]
    transfer_ns = 3 * 64 * 10**9 // 10_000 + 7 * MS
    emulated_ns = trips_ns[0] + transfer_ns + (OUTPUT - 1) * trips_ns[1]
    assert all(emulated_ns <= ns <= emulated_ns + MS for ns in latencies_ns(user))
    if visits == ROUTES[0]:  # else stages are patient before they ask for their first promises
        assert cluster.clock.slip_ns == 0
        assert cluster.wall_ns <= 4 * (emulated_ns + 2 * QUANTUM_NS + MS) + TOLERANCE_NS


@pytest.mark.parametrize("order", ["source-first", "destination-first"])
@settings(deadline=None, max_examples=12)
@given(stalls=STALLS)
def test_stalls_change_no_hand_over(order: Order, stalls: list[Stall]) -> None:
    fleet = handing_over(order, ROUTES[1])
    _, undisturbed = served(fleet, [])
    cluster, user = served(fleet, stalls)
    assert latencies_ns(user) == latencies_ns(undisturbed)
    replay = Recorder()
    inprocess.run_fleet(fleet, ListWorkload(cluster.arrived), seed=0, observer=replay)
    assert replay.requests == user.requests
    assert {record.hand_over.decode_replica for record in user.requests if record.hand_over} == {1, 2}


@pytest.mark.parametrize("who", [-1, 0, 1, 2])
def test_the_slip_is_the_stall(who: int) -> None:
    visits = ROUTES[0]
    stall_ns = 12_000 * MS
    calm, _ = served(alone(visits), [])
    cluster, _ = served(alone(visits), [Stall(who, 30 * MS, stall_ns)])
    trip_ns = cluster.fleet.route(0).trip_ns
    assert calm.clock.slip_ns == 0
    assert stall_ns - TOLERANCE_NS - 2 * trip_ns <= cluster.clock.slip_ns <= stall_ns + 2 * QUANTUM_NS


def test_who_comes_during_a_stall_is_stamped_where_the_clock_stands() -> None:
    user = User(1)
    cluster = Cluster(alone(ROUTES[0]), user, [Stall(1, 5 * MS, 12_000 * MS)])
    user.start(cluster)
    stamps: list[int] = []
    for second in range(1, 12):
        cluster.at(second * 1_000 * MS, lambda: stamps.append(cluster.submit(8, OUTPUT)))
    cluster.run(lambda: len(user.requests) == 12)
    assert len(set(stamps)) == 1
    assert stamps[0] < 50 * MS
    assert max(latencies_ns(user)) < 500 * MS


@pytest.mark.parametrize("visits", ROUTES)
def test_an_idle_pipeline_shows_no_kv_in_use(visits: tuple[int, ...]) -> None:
    """Ledgers change with the next microbatch; what is free until then is told."""
    cluster, user = served(alone(visits), [])
    cluster.run(lambda: not any(stage.kv_used_bytes for stage in cluster.stages))
    assert any(stage.stage.ledger.used_bytes for stage in cluster.stages)
    user.more(1)
    cluster.run(lambda: len(user.requests) == 5 and not any(stage.kv_used_bytes for stage in cluster.stages))


@pytest.mark.parametrize("fleet", [*map(alone, ROUTES), handing_over("source-first", ROUTES[0])])
@settings(deadline=None, max_examples=40)
@example(lost_ns=4 * MS, pause_ns=5 * MS)  # what is due waits for a completion that is foreseen a little earlier
@given(lost_ns=st.integers(0, 150).map(lambda ms: ms * MS), pause_ns=st.sampled_from(LENGTHS_NS))
def test_a_session_that_is_done_again_loses_its_pause_and_nothing_else(
    fleet: ServedFleet, lost_ns: int, pause_ns: int
) -> None:
    shown, wanted = Recorder(), Recorder()
    seen = Resumed(shown)
    first = Cluster(fleet, seen)
    for number in range(4):
        first.at(number * 3 * MS, lambda: first.submit(8, 3 * OUTPUT))
    first.at(lost_ns, lambda: None)
    first.run(lambda: first.wall_ns >= lost_ns)
    slip_ns, wall_ns = first.clock.slip_ns, first.wall_ns
    seen.begin()
    again = first.again_after(pause_ns, seen)
    again.submit(8, OUTPUT)  # who comes then is served as well
    again.run(lambda: len(shown.requests) == len(again.arrived))
    inprocess.run_fleet(again.fleet, ListWorkload(again.arrived), seed=0, observer=wanted)
    assert (shown.tokens, shown.requests) == (wanted.tokens, wanted.requests)
    slip_ns = again.clock.slip_ns - slip_ns
    assert pause_ns - 2 * MS <= slip_ns <= again.wall_ns - wall_ns
    if not any(
        route.revisits for route in fleet.routes
    ):  # else stages are patient before they ask for their first promises
        assert slip_ns - pause_ns <= TOLERANCE_NS
