"""How a plan was made and what drove a run, in words."""

import pytest

from stageline.engine.settings import Scheduling
from stageline.report.settings import Facts, plan_label, run_label, settings_in_force, settings_text
from stageline.testing.plans import uniform_plan


@pytest.mark.parametrize(
    ("made", "label"),
    [
        ({"tp": 4, "pp": 2, "ep": 1, "cp": 1, "dp": 2, "weights": "bf16"}, "TP4 PP2 x 2, bf16"),
        ({"tp": 1, "pp": 1, "ep": 1, "cp": 1, "dp": 1, "weights": "fp8"}, "TP1, fp8"),
        ({"tp": 1, "pp": 1, "ep": 16, "cp": 1, "dp": 1, "weights": "fp8"}, "EP16, fp8"),
        ({"context_tokens": 8192}, ""),  # an older plan
    ],
)
def test_the_label_of_a_plan(made: Facts, label: str) -> None:
    assert plan_label(made) == label


def test_the_label_of_a_run() -> None:
    made: Facts = {"tp": 2, "pp": 1, "dp": 1, "weights": "bf16"}
    assert run_label(made, {"serving_engine": "vllm-v1"}) == "TP2, bf16, vllm-v1"
    assert run_label({}, {}) == ""


def test_settings_in_force_are_those_given_and_the_plans() -> None:
    found = settings_in_force(uniform_plan(credits=3, microbatch=5), Scheduling(microbatch=9, kv="grow"), "own")
    assert (found["serving_engine"], found["credits"], found["microbatch"], found["kv"]) == ("own", 3, 9, "grow")
    assert (found["batched_tokens"], found["prefix_cache"]) == (2048, False)
    assert not found.keys() & {"snapshot_tokens", "speculate", "tpot_slo_ns", "max_running"}
    text = settings_text(found)
    assert text.startswith("balanced, fcfs, KV grow, prefix cache off; 3 in flight, microbatches of at most 9, 2,048 ")
