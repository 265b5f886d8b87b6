"""Sizes that follow from memory and from the serving engine."""

import msgspec
import pytest

import stageline
from stageline.errors import DoesNotFit, UsageError
from stageline.plan.kv_given import with_blocks
from stageline.plan.options import EngineRules, PlanOptions
from stageline.plan.schema import KvWindow, StagePlan
from stageline.plan.sizing import credits_for, for_ranks, nominal_microbatch, serving
from stageline.plan.timing import PipelineTiming

RULES = EngineRules("own", "1", "all", "greedy", "balanced", "fcfs", "grow", True, False)
STAGE = StagePlan(name="stage-0", layers=(0,), kv_block_bytes=10, weight_bytes=50, kv_budget_bytes=45)


@pytest.mark.parametrize(
    ("stages", "requests", "limit", "size"),
    [
        (59, 921, None, 16),  # 59 x 15 would leave 36 of them out
        (1, 500, None, 500),
        (1, 500, 256, 256),
        (4, 500, 256, 64),
        (8, 3, None, 1),
    ],
)
def test_the_nominal_microbatch_holds_all_that_run(stages: int, requests: int, limit: int | None, size: int) -> None:
    assert nominal_microbatch(stages, requests, PlanOptions(max_num_seqs=limit)) == size


def test_a_microbatch_that_was_given_stays() -> None:
    assert nominal_microbatch(4, 100, PlanOptions(microbatch=7)) == 7


@pytest.mark.parametrize(
    ("stages", "options", "number"),
    [
        (1, PlanOptions(), 1),
        (1, PlanOptions(credits=3), 3),
        (4, PlanOptions(), 9),
        (12, PlanOptions(), 12),
        (4, PlanOptions(credits_rule="stages"), 4),
    ],
)
def test_microbatches_in_flight(stages: int, options: PlanOptions, number: int) -> None:
    timing = PipelineTiming(trip_ns=90, busiest_ns=10, stage_ns=(10,) * stages, network_ns=0)
    assert credits_for(stages, timing, options) == number


def test_limits_of_all_data_parallel_ranks_of_a_stage_add_up() -> None:
    options = PlanOptions(
        expert_parallel=8, tensor_parallel=2, max_num_seqs=10, rank_tokens=100, credits_rule="stages", serving=RULES
    )
    assert for_ranks(options).batched_tokens == 4 * 100
    found = serving([STAGE], options)
    assert found is not None
    assert (found.max_running, found.largest_microbatch, found.ranks) == (40, 40, 4)


def test_a_batch_holds_a_share_of_what_runs() -> None:
    """SGLang's pp_max_micro_batch_size: max_running_requests // pp_size."""
    options = PlanOptions(max_num_seqs=10, serving=RULES._replace(batch_holds="share"))
    found = serving([STAGE] * 4, options)
    assert found is not None
    assert (found.max_running, found.largest_microbatch) == (10, 2)


@pytest.mark.parametrize(
    ("stage", "asked", "caching"),
    [
        ({}, None, True),
        ({}, False, False),
        ({"state_bytes": 8}, None, False),
        ({"state_bytes": 8}, True, True),
        ({"kv_windows": (KvWindow(most_blocks=1, block_bytes=1),)}, None, True),
    ],
)
def test_the_prefix_cache_by_default(stage: dict[str, object], asked: bool | None, caching: bool) -> None:
    stages = [msgspec.structs.replace(STAGE, **stage), STAGE]
    found = serving(stages, PlanOptions(serving=RULES, prefix_cache=asked))
    assert found is not None
    assert (found.prefix_cache, found.batching) == (caching, "balanced")


def test_a_plan_without_an_engine_says_nothing_of_one() -> None:
    assert serving([STAGE], PlanOptions()) is None


def test_blocks_given() -> None:
    assert with_blocks(STAGE, None, 100) is STAGE
    assert with_blocks(STAGE, 5, 100).kv_budget_bytes == 50
    with pytest.raises(DoesNotFit, match="at most 5 blocks"):
        with_blocks(STAGE, 6, 100)
    with pytest.raises(UsageError, match="linear attention"):
        with_blocks(msgspec.structs.replace(STAGE, state_bytes=1), 5, 100)


def test_kv_that_was_given_and_holds_no_request_is_named() -> None:
    """10 blocks of 16 tokens; a token of llama-3.1-8b takes 131,072 bytes, so that 1 MiB holds 8, less than a block."""
    with pytest.raises(DoesNotFit) as caught:
        stageline.plan_model("llama-3.1-8b", "h100-sxm", kv_blocks=10)
    assert "holds a request of at most 160 tokens" in caught.value.reason
    assert str(caught.value).endswith("smallest change: --num-gpu-blocks-override 512, or --max-model-len 160")
    for way_out in ({"kv_blocks": 512}, {"kv_blocks": 10, "max_model_len": 160}):
        assert stageline.plan_model("llama-3.1-8b", "h100-sxm", **way_out).planned.requests == (1,)  # type: ignore[arg-type]
    with pytest.raises(DoesNotFit, match=r"no request of one token.*1,073,741,824 bytes"):
        stageline.plan_model("llama-3.1-8b", "h100-sxm", kv_cache_bytes=1 << 20)
    assert stageline.plan_model("llama-3.1-8b", "h100-sxm", kv_cache_bytes=1 << 30).planned.requests == (1,)
    with pytest.raises(DoesNotFit, match=r"4 request.* take 2,048 blocks"):
        stageline.plan_model("llama-3.1-8b", "h100-sxm", kv_blocks=2047, concurrency=4)


def test_given_kv_is_not_blamed_on_weights() -> None:
    report = stageline.plan_model("llama-3.1-8b", "h100-sxm", kv_blocks=600)
    assert {(row.requests, row.binds) for row in report.report().by_context if row.context_tokens > 9600} == {(0, "kv")}
    assert any("--num-gpu-blocks-override" in text and "would not start" in text for text in report.advice())
