"""Layers per stage: given, or as vLLM and SGLang split them; and the automatic cut at the plan's own microbatch."""

import pytest

import stageline
from stageline.errors import BadInput, DoesNotFit, UsageError
from stageline.plan.layer_partition import sglang_split, trtllm_split, vllm_split


def layers(**keywords: object) -> list[int]:
    plan = stageline.plan_model("llama-3.1-70b", "h100-sxm", **keywords).plan  # type: ignore[arg-type]
    return [len(stage.layers) for stage in plan.stages]


@pytest.mark.parametrize(
    ("count", "stages", "vllm", "sglang", "trtllm"),
    [
        (20, 4, [5, 5, 5, 5], [5, 5, 5, 5], [5, 5, 5, 5]),
        (21, 4, [5, 5, 6, 5], [5, 5, 5, 6], [6, 5, 5, 5]),
        (22, 4, [5, 6, 6, 5], [5, 5, 6, 6], [6, 6, 5, 5]),
        (23, 4, [6, 6, 6, 5], [5, 6, 6, 6], [6, 6, 6, 5]),
        (93, 4, [23, 23, 24, 23], [23, 23, 23, 24], [24, 23, 23, 23]),
        (61, 2, [31, 30], [30, 31], [31, 30]),
    ],
)
def test_the_default_splits_of_engines(
    count: int, stages: int, vllm: list[int], sglang: list[int], trtllm: list[int]
) -> None:
    assert vllm_split(count, stages) == vllm
    assert sglang_split(count, stages) == sglang
    assert trtllm_split(count, stages) == trtllm


def test_a_partition_is_followed() -> None:
    assert layers(layer_partition="18,22,22,18") == [18, 22, 22, 18]
    assert layers(layer_partition="18,22,22,18", stages=4, tensor_parallel=2) == [18, 22, 22, 18]
    assert layers(layer_partition="vllm", stages=6) == vllm_split(80, 6)
    assert layers(layer_partition="sglang", stages=6) == sglang_split(80, 6)
    made = stageline.plan_model("llama-3.1-70b", "h100-sxm", layer_partition="40,40").plan
    assert made.info["partition"] == "40,40"


@pytest.mark.parametrize(
    ("partition", "keywords", "error", "says"),
    [
        ("20,20,20", {}, BadInput, "60 layers, but llama-3.1-70b has 80"),
        ("20,20,20,20", {"stages": 2}, BadInput, "4 stages, but the replica has 2"),
        ("20,twenty", {}, BadInput, "neither layers per stage nor a known split"),
        ("40,0,40", {}, BadInput, "stage 1 has no layer"),
        ("70,10", {}, DoesNotFit, r"stage 0 with layers 0 to 69 .* short; give it 4\d layers or fewer"),
        ("40,40", {"placement": "interleaved", "stages": 2}, UsageError, "can't be combined with --placement"),
    ],
)
def test_partitions_that_cannot_be(
    partition: str, keywords: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        layers(layer_partition=partition, **keywords)


def test_the_automatic_cut_balances_at_the_plans_own_microbatch() -> None:
    """A cut that was balanced at 8 sequences was 13.8 % slower on eight H200 at the plan's own."""
    own = stageline.plan_model("llama-3.1-8b", "h200", devices=8)
    microbatch = own.plan.defaults.microbatch
    asked = stageline.plan_model("llama-3.1-8b", "h200", devices=8, microbatch=microbatch)
    assert own.planned.timing.busiest_ns == asked.planned.timing.busiest_ns
    assert [s.layers for s in own.plan.stages] == [s.layers for s in asked.plan.stages]


def cut(model: str, device: str, **keywords: object) -> tuple[list[int], int]:
    made = stageline.plan_model(model, device, **keywords)  # type: ignore[arg-type]
    return [len(stage.layers) for stage in made.plan.stages], min(made.planned.requests)


def test_the_automatic_cut_leaves_room_for_kv_where_that_costs_little() -> None:
    """61 layers on five stages: the most balanced cut puts 13 MoE layers on a stage, which leave 4 of 141 GB."""
    assert cut("kimi-k2.6", "h200") == ([13, 12, 12, 12, 12], 85)
    assert cut("kimi-k2.6", "h200", layer_partition="12,12,13,13,11") == ([12, 12, 13, 13, 11], 32)
    # as many requests as the engine runs are enough: then balance counts alone
    assert cut("kimi-k2.6", "h200", max_num_seqs=32)[0] == [12, 12, 13, 13, 11]


def test_an_even_model_is_cut_as_before() -> None:
    assert cut("llama-3.1-70b", "h100-sxm", devices=4)[0] == [20, 20, 20, 20]


def test_a_stage_without_a_layer_is_named() -> None:
    with pytest.raises(BadInput, match=r"stage 1 has no layer.*fewer stages"):
        layers(layer_partition="80,0")
