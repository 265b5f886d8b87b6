"""Workloads of the test kit: what they hand out, and when."""

from stageline.engine.types import NEVER, Cancellation
from stageline.testing import ListWorkload, UsersWorkload, request


def test_a_list_is_handed_out_in_its_order() -> None:
    events = [request(0, 5), Cancellation(index=0, at_ns=7)]
    workload = ListWorkload(events)
    assert (workload.next_arrival_ns(), workload.horizon_ns(), workload.reactive) == (5, NEVER, False)
    assert workload.take() is events[0]
    assert workload.next_arrival_ns() == 7
    assert workload.take() is events[1]
    assert workload.next_arrival_ns() is None
    workload.finished(0, 9)
    assert workload.ended == [(0, 9)]


def test_users_wait_think_and_go_on() -> None:
    workload = UsersWorkload([[request(output_tokens=1), request(output_tokens=2)], [request()], []], [10, 0, 0], 5)
    assert workload.reactive
    first, second = workload.take(), workload.take()
    assert [(r.index, r.arrival_ns) for r in (first, second)] == [(0, 0), (1, 10)]
    assert workload.next_arrival_ns() is None
    workload.finished(0, 20)  # the second user has nothing more to send
    assert workload.next_arrival_ns() is None
    workload.finished(1, 30)
    assert workload.next_arrival_ns() == 35
    assert (third := workload.take()).output_tokens == 2
    assert (third.index, third.arrival_ns, workload.user_of) == (2, 35, [1, 0, 0])


def test_a_request_may_produce_what_it_will() -> None:
    assert request(output_tokens=9).max_output_tokens == 9
    assert request(3, 8, max_output_tokens=20, priority=1).max_output_tokens == 20
