"""What binds shows in a run, with its cost and what can move it; a sound run gets no line."""

import re
from collections.abc import Callable

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Plan
from stageline.report.run_writer import RunWriter
from stageline.report.summary import RunFacts, Summary
from stageline.workload import open_workload
from tests.unit.report.conftest import plan as chain

SHELF = Catalog()
BUSY = "closed:users=128,requests=600,input=256,output=64"
CALM = "closed:users=4,requests=40,input=256,output=32"


def planned(model: str, device: str = "h800", **options: object) -> Plan:
    asked = PlanOptions(**options)  # type: ignore[arg-type]
    return make_plan(SHELF.model(model).spec, SHELF.device(device).device, asked).plan


def summary(plan: Plan, workload: str = BUSY) -> Summary:
    with RunWriter(plan) as writer:
        totals = inprocess.run(plan, Scheduling(), open_workload(workload, seed=1), seed=1, observer=writer)
        facts = RunFacts(
            engine="inprocess", seed=1, command="", workload="", rows={}, wall_s=0, credits=plan.defaults.credits
        )
        return writer.finish(totals, facts)


def advice(plan: Plan, workload: str = BUSY) -> str:
    return "\n".join(f"{line.seen}: {line.moved_by}" for line in summary(plan, workload).binds)


def nominal_layers() -> Plan:
    return planned("kimi-k3", "wse-3t", layer_bytes="nominal")


def held_back() -> Plan:
    """Stage 5 of eight takes twice as long, and nothing but the work takes time."""
    slow = chain(stages=8, slow=5)
    return msgspec.structs.replace(slow, defaults=msgspec.structs.replace(slow.defaults, microbatch=1))


SOUND: tuple[Callable[[], Plan], ...] = (
    lambda: planned("llama-3.1-8b"),
    lambda: planned("llama-3.1-70b", tensor_parallel=8, context_tokens=512),
)


@pytest.mark.parametrize("made", SOUND)
def test_a_sound_plan_under_load_is_left_alone(made: Callable[[], Plan]) -> None:
    assert advice(made(), BUSY.replace("128", "48")) == ""


@pytest.mark.parametrize(
    ("made", "workload", "says"),
    [
        (lambda: planned("llama-3.1-8b", devices=4), BUSY, "holds the weights and all KV"),
        (
            lambda: planned("llama-3.1-70b", devices=2, replicas=4),
            BUSY.replace("256", "4096"),
            "hold the weights 4 times",
        ),
        (lambda: planned("llama-3.1-405b", tensor_parallel=16), CALM, "leaves the scale-up domain of 8"),
        (lambda: planned("llama-3.1-70b", devices=4, hop_latency_ns=30_000_000), CALM, "is network latency"),
        (held_back, "closed:users=64,requests=600,input=8,output=8", "holds the pipeline back"),
        (lambda: planned("llama-3.1-70b", devices=2), BUSY.replace("256", "4096"), "KV runs out with"),
        (lambda: planned("llama-3.1-70b", devices=8), CALM.replace("users=4", "users=2"), "about 8 requests at once"),
        (nominal_layers, CALM, "--layer-bytes"),
        (lambda: planned("llama-3.1-70b"), CALM, "Weights in int4"),
    ],
)
def test_a_mistake_is_named_with_its_cost_and_a_hint(made: Callable[[], Plan], workload: str, says: str) -> None:
    assert says in advice(made(), workload)


def test_costs_are_those_of_the_run() -> None:
    """Two requests on eight stages keep a quarter of the pipeline busy."""
    found = summary(planned("llama-3.1-70b", devices=8), CALM.replace("users=4", "users=2"))
    few = found.binds[0].seen
    assert f"{found.bubble_ratio:.0%} of the time with work is bubbles, with 2 requests served at once" in few
    assert 0.7 < found.bubble_ratio < 0.8


def test_enough_requests_are_not_called_too_few() -> None:
    assert "Too few microbatches are in flight: " not in advice(planned("llama-3.1-70b", devices=8), BUSY)


def test_an_unbalanced_stage_matters_only_where_it_limits() -> None:
    """The same stage, twice as slow as the others, under one user: nothing is gained by another cut."""
    assert "holds the pipeline back" in advice(held_back(), "closed:users=64,requests=600,input=8,output=8")
    assert "holds the pipeline back" not in advice(held_back(), "closed:users=1,requests=60,input=8,output=8")


def test_waiting_for_a_slower_stage_is_told_from_waiting_for_a_chunk() -> None:
    """Both are waits for the stages before; one is moved by the cut of the layers, the other by the size of chunks."""
    found = advice(held_back(), "closed:users=64,requests=600,input=8,output=8")
    assert re.search(r"slower ones before them for \d+% of the time \(uneven\); stage 5 is busy 1.77 x", found)
    assert "(chunk)" not in found
    chunks = advice(planned("llama-3.1-70b", devices=8), "closed:users=16,requests=300,input=3000,output=32")
    assert re.search(r"prefill chunks .* \(chunk\): the size of prefill chunks", chunks)
    assert "(uneven)" not in chunks


def test_kv_room_that_is_missing_names_the_stage_that_binds() -> None:
    tight = chain(stages=4, slow=0)
    stages = [msgspec.structs.replace(s, kv_budget_bytes=320 * (2 if i else 1)) for i, s in enumerate(tight.stages)]
    found = advice(
        msgspec.structs.replace(tight, stages=tuple(stages)), "closed:users=64,requests=300,input=8,output=8"
    )
    assert "KV room is missing for" in found and "(stage 0 binds)" in found


def test_split_is_judged_by_what_the_run_held() -> None:
    """70B in bf16 never fits one device; 8B with its KV does, until the plan's device is made too small for it."""
    split = planned("llama-3.1-8b", devices=2)
    assert "holds the weights" in advice(split, CALM)
    small = [msgspec.structs.replace(stage, memory_bytes=stage.memory_bytes // 5) for stage in split.stages]
    assert "holds the weights" not in advice(msgspec.structs.replace(split, stages=tuple(small)), CALM)


def test_weights_that_were_made_smaller_already_are_not_shrunk_again() -> None:
    spec, device = SHELF.model("llama-3.1-70b").spec.requantised("int4"), SHELF.device("h100-sxm").device
    found = advice(make_plan(spec, device, PlanOptions(devices=2)).plan, CALM)
    assert "--weights" not in found


def test_models_and_devices_outside_the_catalogue_are_passed_over() -> None:
    plan = msgspec.structs.replace(nominal_layers(), model="mine", device="mine")
    assert "--layer-bytes" not in advice(plan, CALM)


def test_nothing_is_promised() -> None:
    """What a setting does takes a trial: no line names a value for one, or says what it would do."""
    runs = [
        (planned("llama-3.1-8b", devices=4), BUSY),
        (planned("llama-3.1-70b", devices=2, replicas=4), BUSY.replace("256", "4096")),
        (held_back(), "closed:users=64,requests=600,input=8,output=8"),
        (nominal_layers(), CALM),
    ]
    for plan, load in runs:
        for line in summary(plan, load).binds:
            assert not re.search(
                r"--[a-z-]+ [0-9a-z]*[0-9]|\b(try|use|raise|lower|rises|plan with)\b", line.moved_by
            ), line
