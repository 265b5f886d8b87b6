"""The prefix cache on a public trace, and beside clients that leave."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from stageline.cost.entries import Affine
from stageline.engine import inprocess, prefix
from stageline.engine.mirror import KvMirror
from stageline.engine.prompt_cache import make_cache
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import KvPolicy, Scheduling
from stageline.engine.types import NEVER, Cancellation, Request, RequestRecord, Workload
from stageline.errors import UsageError
from stageline.plan.schema import Defaults, LinkPlan, Plan, StagePlan, Visit
from stageline.workload import open_workload
from tests.draining import drain
from tests.reference.delivery import Session
from tests.reference.strategies import Scenario, build_sharing
from tests.reference.workloads import ListWorkload

MOONCAKE = "traces/mooncake_conversation_trace.jsonl"
CACHED = Scheduling(prefix_cache=True, hash_block_tokens=512)


def plan(*, budget_bytes: int = 1 << 60, state_bytes: int = 0, block_tokens: int = 512) -> Plan:
    """One stage that hardly takes any time."""
    stage = StagePlan(
        name="s", layers=(0,), kv_budget_bytes=budget_bytes, kv_block_bytes=block_tokens, state_bytes=state_bytes
    )
    return Plan(
        model="m", device="d", stages=(stage,), block_tokens=block_tokens, costs=(Affine(base_ns=1),),
        visits=(Visit(stage=0, layers=(0,), cost=0, min_service_ns=1),),
        links=(LinkPlan(latency_ns=0, bytes_per_s=10**18, bytes_per_token=0),) * 2,
        defaults=Defaults(microbatch=1000, credits=4, batched_tokens=1 << 20),
    )  # fmt: skip


class Records:
    """An observer that keeps the records."""

    def __init__(self) -> None:
        self.all: list[RequestRecord] = []

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See `Observer`."""

    def request(self, record: RequestRecord) -> None:
        """See `Observer`."""
        self.all.append(record)


def hits_of_an_unbounded_cache(requests: Iterable[Request]) -> tuple[int, int]:
    """Blocks found and blocks asked for, one request after the other. Equal prefixes have equal ids in this trace."""
    known: set[int] = set()
    found = asked = 0
    for r in requests:
        usable = r.hash_ids[: (r.prompt_tokens - 1) // 512]
        found += next((n for n, key in enumerate(usable) if key not in known), len(usable))
        asked += len(r.hash_ids)
        known.update(r.hash_ids[: r.prompt_tokens // 512])
    return found, asked


def test_an_unbounded_cache_hits_36_6_percent_of_the_conversation_trace(shared_data: Path) -> None:
    """The figure that its publishers give."""
    requests = drain(open_workload(str(shared_data / MOONCAKE)))
    p = plan()
    mirror = KvMirror(p)
    cache = make_cache(mirror, Route(p), CACHED)
    assert cache is not None
    for request in requests:
        sequence = Sequence(request, 0)
        cache.acquire(sequence)
        cache.count(sequence)
        sequence.written_tokens = request.prompt_tokens
        sequence.blocks = mirror.blocks_for(request.prompt_tokens) - sequence.cached_blocks
        cache.cache_full_blocks(sequence, [])
        cache.release(sequence)
    stats = cache.stats()
    assert stats.queried_blocks == 288_500
    assert (stats.hit_blocks, stats.queried_blocks) == hits_of_an_unbounded_cache(requests)
    assert round(100 * stats.hit_blocks / stats.queried_blocks, 1) == 36.6


def test_a_run_hits_what_an_unbounded_cache_hits(shared_data: Path) -> None:
    """The first minutes of the trace, answers cut to one token."""
    rows = islice(drain(open_workload(str(shared_data / MOONCAKE), requests=600)), 600)
    requests = [msgspec.structs.replace(r, output_tokens=1, max_output_tokens=1) for r in rows]
    seen = Records()
    totals = inprocess.run(plan(), CACHED, ListWorkload(requests), seed=0, observer=seen)
    stats = totals.prefix[0]
    assert (stats.hit_blocks, stats.queried_blocks) == hits_of_an_unbounded_cache(requests)
    assert stats.hit_tokens == sum(r.cached_tokens or 0 for r in seen.all) > 0
    assert stats.evictions == 0


def request(index: int, tokens: int, ids: tuple[int, ...], at_ns: int) -> Request:
    """A request of one token."""
    return Request(
        index=index, arrival_ns=at_ns, prompt_tokens=tokens, output_tokens=1, max_output_tokens=1, hash_ids=ids
    )


def cached_tokens(scheduling: Scheduling, p: Plan, requests: list[Request]) -> list[int | None]:
    """What each request found."""
    seen = Records()
    inprocess.run(p, scheduling, ListWorkload(requests), seed=0, observer=seen, paranoid=True)
    return [r.cached_tokens for r in sorted(seen.all, key=lambda r: r.index)]


def test_at_least_one_token_is_always_computed() -> None:
    ids = (1, 2)
    requests = [request(0, 1024, ids, 0), request(1, 1024, ids, 1000), request(2, 1025, (*ids, 3), 2000)]
    assert cached_tokens(CACHED, plan(), requests) == [0, 512, 1024]


def test_hits_are_cut_to_the_last_state_snapshot() -> None:
    ids = tuple(range(10))
    requests = [request(0, 5120, ids, 0), request(1, 5120, ids, 1000)]
    p = plan(state_bytes=100)
    every = msgspec.structs.replace
    assert cached_tokens(every(CACHED, snapshot_tokens=512), p, requests) == [0, 9 * 512]
    assert cached_tokens(every(CACHED, snapshot_tokens=2048), p, requests) == [0, 8 * 512]
    assert cached_tokens(every(CACHED, snapshot_tokens=8192), p, requests) == [0, 0]


def test_two_that_run_at_once_share_one_copy() -> None:
    """Each would need ten blocks; fifteen are there."""
    ids = tuple(range(9))
    requests = [request(0, 9 * 512 + 1, ids, 0), request(1, 9 * 512 + 1, ids, 0)]
    assert cached_tokens(CACHED, plan(budget_bytes=15 * 512), requests) == [0, 9 * 512]


@pytest.mark.parametrize("kv", ["reserve", "grow"])
def test_what_nobody_uses_makes_room_and_no_more_of_it_than_needed(kv: KvPolicy) -> None:
    """Of twelve blocks the first prompt leaves eight; the second needs nine, or ten when it reserves its answer."""
    first, second = tuple(range(8)), tuple(range(100, 108))
    requests = [request(0, 8 * 512 + 1, first, 0), request(1, 8 * 512 + 512, second, 1000)]
    scheduling = msgspec.structs.replace(CACHED, kv=kv)
    seen = Records()
    totals = inprocess.run(
        plan(budget_bytes=12 * 512), scheduling, ListWorkload(requests), seed=0, observer=seen, paranoid=True
    )
    assert totals.prefix[0].evictions == {"grow": 5, "reserve": 6}[kv]
    assert [(r.outcome, r.preemptions) for r in seen.all] == [("finished", 0)] * 2


@pytest.mark.parametrize(
    ("scheduling", "state_bytes", "reason"),
    [
        (Scheduling(prefix_cache=True, hash_block_tokens=16), 0, "16-token blocks .* KV blocks of 512"),
        (msgspec.structs.replace(CACHED, snapshot_tokens=700), 1, "--snapshot-tokens 700: .* multiple of 512"),
        (msgspec.structs.replace(CACHED, snapshot_tokens=256), 1, "--snapshot-tokens 256: .* multiple of 512"),
    ],
)
def test_settings_that_do_not_fit_the_plan(scheduling: Scheduling, state_bytes: int, reason: str) -> None:
    p = plan(state_bytes=state_bytes)
    with pytest.raises(UsageError, match=reason):
        make_cache(KvMirror(p), Route(p), scheduling)


def test_a_chain_that_is_used_for_ever_does_not_fill_the_memory() -> None:
    p = plan()
    mirror = KvMirror(p)
    cache = make_cache(mirror, Route(p), CACHED)
    assert cache is not None
    sequence = Sequence(request(0, 100 * 512 + 1, tuple(range(100)), 0), 0)
    sequence.written_tokens = 100 * 512
    cache.cache_full_blocks(sequence, [])
    cache.release(sequence)
    for _ in range(1000):
        assert cache.acquire(sequence) == 100 * 512
        cache.release(sequence)
    assert len(cache._idle) <= prefix.SWEEP_ENTRIES + 100
    while cache.evict_one():
        pass
    assert cache.evicted_blocks == 100


class EventSource:
    """Requests and cancellations known beforehand, in order."""

    reactive = False

    def __init__(self, events: list[Request | Cancellation]) -> None:
        self._events: Iterator[Request | Cancellation] = iter(events)
        self._head = next(self._events, None)

    def next_arrival_ns(self) -> int | None:
        """See `Workload`."""
        return None if self._head is None else time_of(self._head)

    def take(self) -> Request | Cancellation:
        """See `Workload`."""
        head, self._head = self._head, next(self._events, None)
        assert head is not None
        return head

    def horizon_ns(self) -> int:
        """See `Workload`."""
        return NEVER

    def finished(self, index: int, now_ns: int) -> None:
        """Nothing depends on it."""


def time_of(event: Request | Cancellation) -> int:
    """When it happens."""
    return event.at_ns if isinstance(event, Cancellation) else event.arrival_ns


@dataclass(frozen=True)
class Impatient:
    """A scenario in which some clients leave."""

    inner: Scenario
    events: list[Request | Cancellation]

    @property
    def plan(self) -> Plan:
        """See `Scenario`."""
        return self.inner.plan

    @property
    def scheduling(self) -> Scheduling:
        """See `Scenario`."""
        return self.inner.scheduling

    @property
    def seed(self) -> int:
        """See `Scenario`."""
        return self.inner.seed

    def workload(self) -> Workload:
        """See `Scenario`."""
        return EventSource(self.events)


def impatient(number: int) -> Impatient | None:
    """Some clients leave at any time after their arrival; None: the scenario is a closed loop."""
    rnd = random.Random(number)
    scenario = build_sharing(rnd)
    if scenario.starts_ns:
        return None
    events: list[Request | Cancellation] = list(scenario.users[0])
    for r in scenario.users[0]:
        if rnd.randint(0, 1):
            at_ns = r.arrival_ns + rnd.choice([0, rnd.randint(1, 200), rnd.randint(1, 4000)])
            events.append(Cancellation(index=r.index, at_ns=at_ns))
    events.sort(key=lambda e: (time_of(e), isinstance(e, Cancellation)))
    return Impatient(scenario, events)


def test_clients_that_leave_leave_no_block_behind() -> None:
    """All laws after every event, and the same records from any delivery; `impatient(n)` replays scenario n."""
    cancelled = hits = 0
    for number in range(60):
        scenario = impatient(number)
        if scenario is None:
            continue
        seen, others = Records(), Records()
        try:
            totals = inprocess.run(
                scenario.plan,
                scenario.scheduling,
                scenario.workload(),
                seed=scenario.seed,
                observer=seen,
                paranoid=True,
            )
            session = Session(scenario, others, window_frames=2, delivery=number)  # type: ignore[arg-type]
            assert tuple(session.run()) == totals.stages
            assert sorted(others.all, key=lambda r: r.index) == sorted(seen.all, key=lambda r: r.index)
            assert not any(n.stage.ledger.used_bytes for row in session.stages for n in row), "L2"
        except Exception as error:
            error.add_note(f"scenario {number}")
            raise
        cancelled += sum(r.outcome == "cancelled" for r in seen.all)
        hits += sum(p.hit_blocks for p in totals.prefix)
    assert cancelled > 20
    assert hits > 20
