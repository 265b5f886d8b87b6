"""The front end: everything happens as without one, a constant time later, and clients see that time."""

from stageline.engine import inprocess
from stageline.engine.front_end import BehindFrontEnd
from stageline.engine.settings import Scheduling
from stageline.engine.types import NEVER, Request, RequestRecord
from stageline.testing import uniform_plan
from stageline.workload.rows import RowCounts
from stageline.workload.workloads import ClosedLoop, IteratedWorkload

FRONT_NS = 8_000


class Kept:
    """An observer that keeps records."""

    def __init__(self) -> None:
        self.rows: list[RequestRecord] = []

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self.rows.append(record)


def sent(front_end_ns: int, workload: IteratedWorkload | ClosedLoop) -> list[RequestRecord]:
    """Records of a run, in order."""
    plan = uniform_plan(2, service_ns=1000, token_ns=10, microbatch=4, credits=2, kv_budget_bytes=1 << 20)
    kept = Kept()
    inprocess.run(plan, Scheduling(front_end_ns=front_end_ns), workload, seed=0, observer=kept)
    return sorted(kept.rows, key=lambda r: r.index)


def stream() -> IteratedWorkload:
    requests = [
        Request(index=i, arrival_ns=i * 700, prompt_tokens=30 + i, output_tokens=5, max_output_tokens=5)
        for i in range(20)
    ]
    return IteratedWorkload(iter(requests), description="", counts=RowCounts(), fraction=lambda: 0.0)


def test_an_open_loop_is_served_that_much_later_and_arrives_as_before() -> None:
    plain, later = sent(0, stream()), sent(FRONT_NS, stream())
    assert [r.arrival_ns for r in plain] == [r.arrival_ns for r in later]
    for a, b in zip(plain, later, strict=True):
        assert (b.first_token_ns or 0) - (a.first_token_ns or 0) == FRONT_NS
        assert (b.last_token_ns or 0) - (a.last_token_ns or 0) == FRONT_NS
        assert (b.admitted_ns or 0) - (a.admitted_ns or 0) == FRONT_NS


def test_a_user_of_a_closed_loop_passes_it_every_time() -> None:
    def users() -> ClosedLoop:
        return ClosedLoop(users=1, think_ns=500, requests=3, lengths=lambda u, n: (10, 4, 4), description="")

    plain, later = sent(0, users()), sent(FRONT_NS, users())
    for n, (a, b) in enumerate(zip(plain, later, strict=True)):
        assert b.arrival_ns - a.arrival_ns == n * FRONT_NS
        assert (b.last_token_ns or 0) - (a.last_token_ns or 0) == (n + 1) * FRONT_NS


def test_nothing_is_later_than_never() -> None:
    loop = ClosedLoop(users=1, think_ns=0, requests=1, lengths=lambda u, n: (1, 1, 1), description="")
    behind = BehindFrontEnd(loop, FRONT_NS)
    assert behind.next_arrival_ns() == FRONT_NS
    behind.take()
    assert behind.next_arrival_ns() is None and behind.horizon_ns() == NEVER
