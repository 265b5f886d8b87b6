"""Rule 2: serialisation, FIFO, latency, jitter, promises."""

from stageline.engine.link import Link
from stageline.engine.types import NEVER
from stageline.plan.schema import LinkPlan


def link(*, jitter_ns: int = 0, bytes_per_s: int = 10**9, is_return: bool = False) -> Link:
    plan = LinkPlan(latency_ns=100, bytes_per_s=bytes_per_s, bytes_per_token=3, jitter_ns=jitter_ns)
    return Link(plan, 1, 0, 5, is_return=is_return)


def test_bytes_occupy_the_link_and_latency_does_not() -> None:
    wire = link()
    assert wire.send(1000, 2, 0) == 1106
    assert wire.send(1000, 2, 1) == 1112  # behind the first one
    assert wire.send(2000, 1, 2) == 2103


def test_serialisation_is_rounded_up() -> None:
    assert link(bytes_per_s=7 * 10**8).serialisation_ns(1) == 5  # 4.29


def test_jitter_never_reorders() -> None:
    wire = link(jitter_ns=1000)
    arrivals = [wire.send(t, 1, t) for t in range(200)]
    assert arrivals == sorted(arrivals)
    assert len({a - t for t, a in enumerate(arrivals)}) > 3


def test_jitter_depends_on_coordinates_alone() -> None:
    one, two = link(jitter_ns=1000), link(jitter_ns=1000)
    one.send(0, 1, 0)
    assert one.send(10_000, 1, 9) == two.send(10_000, 1, 9)


def test_promises_are_the_earliest_arrival_of_one_token() -> None:
    wire = link()
    assert wire.promise_ns(1000) == 1103
    wire.send(5000, 10, 0)
    assert wire.promise_ns(1000) == 5133
    assert wire.promise_ns(NEVER) == NEVER


def test_the_return_link_may_carry_nothing() -> None:
    wire = link(is_return=True)
    assert wire.promise_ns(1000) == wire.send(1000, 0, 0) == 1100
