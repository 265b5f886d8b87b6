"""Where the settings of a run come from, and what a file may not decide."""

import pytest

from stageline.api.scheduling import settle
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError
from stageline.testing import uniform_plan

PLAN = uniform_plan(2)


@pytest.mark.parametrize("axis", ["batching", "queueing", "kv", "balance"])
def test_a_file_may_not_name_code_to_import(axis: str) -> None:
    with pytest.raises(UsageError, match=f"names the {axis} policy os:system, .* give --{axis} os:system"):
        settle(Scheduling(**{axis: "os:system"}), {}, PLAN)


def test_a_flag_that_names_the_class_or_another_policy_decides() -> None:
    recorded = Scheduling(queueing="my.own:Policy")
    assert settle(recorded, {"queueing": "my.own:Policy"}, PLAN).queueing == "my.own:Policy"
    assert settle(recorded, {"queueing": "fcfs"}, PLAN).queueing == "fcfs"
    assert settle(recorded, {}, PLAN, own=True).queueing == "my.own:Policy"
