"""A whole run in one call."""

import pytest

from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation
from stageline.testing import UsersWorkload, request, run_plan, uniform_plan

PLAN = uniform_plan(stages=4, service_ns=100)


class LastFirst:
    """A policy of a user, who need not know any class of the engine."""

    def key(self, request: object) -> int:
        """The latest arrival first."""
        return -request.arrival_ns  # type: ignore[attr-defined,no-any-return]


def test_settings_and_their_changes() -> None:
    requests = [request(i, i, prompt_tokens=9 - i) for i in range(4)]
    one = Scheduling(microbatch=1, credits=1)
    assert run_plan(PLAN, requests, one).admitted == [0, 1, 2, 3]
    assert run_plan(PLAN, requests, one, queueing="shortest").admitted == [0, 3, 2, 1]
    assert run_plan(PLAN, requests, one, queueing=f"{__name__}:LastFirst").admitted == [0, 3, 2, 1]
    assert run_plan(PLAN, requests, one, queueing=LastFirst).admitted == [0, 3, 2, 1]
    with pytest.raises(TypeError, match="colour"):
        run_plan(PLAN, requests, colour="red")


def test_watching_changes_nothing() -> None:
    requests = [request(i, 30 * i) for i in range(20)]
    watched, plain = run_plan(PLAN, requests), run_plan(PLAN, requests, paranoid=False)
    assert (watched.requests, watched.tokens_ns, watched.totals) == (plain.requests, plain.tokens_ns, plain.totals)
    assert watched.digest == plain.digest
    assert watched.seen.services and not plain.seen.services
    assert run_plan(uniform_plan(stages=4, service_ns=101), requests).digest != plain.digest


def test_clients_that_leave_and_users_who_wait() -> None:
    left = run_plan(PLAN, [request(0, 0, output_tokens=50), Cancellation(index=0, at_ns=900)])
    assert [record.outcome for record in left.requests] == ["cancelled"]
    loop = run_plan(PLAN, UsersWorkload([[request(output_tokens=1)] * 2], [0], 7))
    assert [record.arrival_ns for record in loop.requests] == [0, 407]
