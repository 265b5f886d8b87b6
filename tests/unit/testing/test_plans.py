"""Plans of the test kit are valid, and hold what was asked for."""

import msgspec
import pytest

from stageline.plan.check import check_plan
from stageline.testing import uniform_plan


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"stages": 1},
        {"route": (0, 1, 0, 2), "service_ns": (5, 1, 9, 5), "token_ns": 3},
        {"kv_block_bytes": 16, "state_bytes": 5, "kv_budget_bytes": 1000, "block_tokens": 4},
        {"latency_ns": 7, "jitter_ns": 3, "bytes_per_token": 100, "bytes_per_s": 10**11, "replicas": 3},
        {"service_ns": 0, "token_ns": 1},
    ],
)
def test_an_engine_may_run_it(settings: dict[str, object]) -> None:
    plan = uniform_plan(**settings)  # type: ignore[arg-type]
    check_plan(plan, "plan")
    assert msgspec.json.decode(plan.canonical(), type=type(plan)) == plan


def test_stages_follow_from_the_route_or_from_the_times() -> None:
    assert len(uniform_plan(6).stages) == 6
    assert len(uniform_plan(service_ns=[1, 2, 3]).stages) == 3
    plan = uniform_plan(route=(1, 0, 1))
    assert [stage.layers for stage in plan.stages] == [(1,), (0, 2)]
    assert [visit.stage for visit in plan.visits] == [1, 0, 1]
    assert (len(plan.links), plan.defaults.credits) == (4, 2)


def test_one_time_per_visit() -> None:
    plan = uniform_plan(service_ns=[30, 10, 30], token_ns=2)
    assert [plan.costs[visit.cost].base_ns for visit in plan.visits] == [30, 10, 30]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="2 numbers for 3 visits"):
        uniform_plan(route=(0, 1, 2), service_ns=[1, 2])
