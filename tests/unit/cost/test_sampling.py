"""What sampling adds to a step: values by hand, on heads with and without measured times, and from the planner."""

import msgspec
import pytest

from stageline.api.launch_text import SGLANG, VLLM, launch_words
from stageline.api.planning import plan_model
from stageline.cost.entries import CostEntry, LmHead, Roofline
from stageline.cost.measured_entries import AttentionGrid, Curve, MeasuredCost
from stageline.cost.sampling import Sampling, with_sampling
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.plan.shapes import Shape

ONE_DEVICE = Shape(tp=1, ep=1, cp=1, pp=1, replicas=1)
HEAD = Roofline(groups=(), head=LmHead(row_ns=10.0, weights_ns=100.0))
TABLE = msgspec.structs.replace(HEAD, head=LmHead(row_ns=0.0, weights_ns=0.0, curve=Curve(at=(1, 4), ns=(50.0, 80.0))))
NO_ATTENTION = AttentionGrid(chunk=(0, 1), history=(0, 1), sequences=(0, 1), kv=(0, 1), ns=(0.0,) * 16)
MEASURED = MeasuredCost(
    tokens=Curve(at=(1, 2), ns=(5.0, 5.0)), attention=NO_ATTENTION, sampled=Curve(at=(1, 4), ns=(50.0, 80.0))
)


def step_ns(entry: CostEntry, rows: int) -> int:
    return compile_cost(entry).service_ns(BatchTotals(decode_sequences=8, decode_tokens=8, sampled=rows))


@pytest.mark.parametrize("entry", [HEAD, TABLE, MEASURED])
@pytest.mark.parametrize("rows", [1, 3, 4, 8])
def test_a_step_takes_so_much_longer(entry: Roofline | MeasuredCost, rows: int) -> None:
    """Beyond the last measured number of rows too."""
    longer = with_sampling(entry, Sampling(step_ns=500.0, row_ns=60.0))
    assert step_ns(longer, rows) - step_ns(entry, rows) == 500 + 60 * rows


def test_a_step_that_samples_nothing_takes_as_long_as_before() -> None:
    assert step_ns(with_sampling(HEAD, Sampling(500.0, 60.0)), 0) == step_ns(HEAD, 0)


def test_replicas_of_attention_split_the_rows() -> None:
    split = with_sampling(HEAD, Sampling(500.0, 60.0), replicas=4)
    assert step_ns(split, 8) - step_ns(HEAD, 8) == 500 + 60 * 8 / 4


def test_the_last_stage_of_a_plan_samples() -> None:
    def last_entries(**times: int) -> list[CostEntry]:
        plan = plan_model("llama-3.1-8b", "h100-sxm", stages=2, layer_partition="16,16", **times).plan  # type: ignore[arg-type]
        return [plan.costs[visit.cost] for visit in plan.visits]

    plain, sampling = last_entries(), last_entries(sampling_step_ns=400_000, sampling_sequence_ns=59_000)
    assert plain[0] == sampling[0]
    assert step_ns(sampling[1], 8) - step_ns(plain[1], 8) == 400_000 + 8 * 59_000


@pytest.mark.parametrize("engine", [VLLM, SGLANG])
def test_no_engine_is_told_what_the_host_and_sampling_take(engine: str) -> None:
    times = {f"{name}_ns": 1_000 for name in ("host_step", "sampling_step", "sampling_sequence", "front_end")}
    plan = plan_model("llama-3.1-8b", "h100-sxm", **times).plan  # type: ignore[arg-type]
    plain = launch_words(engine, "llama", ONE_DEVICE, {}, plan)
    assert isinstance(plain, list)
    assert launch_words(engine, "llama", ONE_DEVICE, times, plan) == plain  # type: ignore[arg-type]
