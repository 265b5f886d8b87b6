"""Utilisation by hand: one request, one stage."""

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import RequestRecord
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Plan
from stageline.report.run_writer import RunWriter
from stageline.report.summary import RunFacts, Summary
from stageline.report.utilisation import WorkDone, utilisation
from stageline.testing import Ignoring
from stageline.workload import open_workload

SHELF = Catalog()
H100 = msgspec.structs.replace(SHELF.device("h100-sxm").device, costs=None)


def record(prompt: int, output: int, cached: int | None = None) -> RequestRecord:
    return RequestRecord(
        index=0, replica=0, arrival_ns=0, admitted_ns=0, first_token_ns=1, last_token_ns=2, prompt_tokens=prompt,
        output_tokens=output, preemptions=0, outcome="finished", cached_tokens=cached,
    )  # fmt: skip


def test_what_a_request_needs() -> None:
    done = WorkDone()
    done.request(record(4, 3, cached=2))  # positions 2, 3 in prefill; 4, 5 decoded; the last token is only sampled
    assert (done.tokens, done.pairs, done.rows) == (4, 3 + 4 + 5 + 6, 3)
    assert done.kv_read_tokens == 5 + 6
    done.request(record(9, 0))
    assert done.tokens == 4


def summary(plan: Plan, load: str, scheduling: Scheduling = Scheduling()) -> Summary:
    with RunWriter(plan) as writer:
        totals = inprocess.run(plan, scheduling, open_workload(load, requests=1, seed=1), seed=1, observer=writer)
        facts = RunFacts(engine="inprocess", seed=1, command="", workload="", rows={}, wall_s=0, credits=1)
        return writer.finish(totals, facts)


def test_one_long_prompt_reaches_the_share_that_the_device_was_given() -> None:
    """Prefill is bound by compute: MFU is the device's share of peak, but for overheads and hops."""
    spec = SHELF.model("llama-3.1-8b").spec
    plan = make_plan(spec, H100, PlanOptions(batched_tokens=65_536, context_tokens=65_536)).plan
    found = summary(plan, "poisson:rate=1,input=60000,output=1").utilisation
    assert found and found.mfu == pytest.approx(H100.share.flops, rel=0.01)
    assert found.stages[0].bound_by["compute"] > 0.95


def test_one_decoding_request_reads_weights_all_the_time() -> None:
    """A lone token is bound by memory: bandwidth utilisation nears the share, MFU is next to nothing."""
    spec = SHELF.model("llama-3.1-8b").spec
    plan = make_plan(spec, H100, PlanOptions(devices=2, hop_latency_ns=0)).plan
    found = summary(plan, "poisson:rate=1,input=1,output=2000").utilisation
    assert found
    assert 0.5 * H100.share.bandwidth < 2 * found.bandwidth < H100.share.bandwidth  # two stages take turns
    assert found.mfu < 0.005
    assert [stage.stage for stage in found.stages] == [0, 1]
    assert all(stage.bound_by["memory"] > 0.8 for stage in found.stages)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_a_step_reads_the_same_whether_its_drafts_are_right_or_wrong(model: str) -> None:
    """Context once for all tokens of a step, and the experts of rejected ones too; only right ones are useful work."""
    plan = make_plan(SHELF.model(model).spec, H100, PlanOptions(context_tokens=32_768)).plan
    load = "poisson:rate=1,input=1,output=10000"
    wrong, right = (
        summary(plan, load, Scheduling(speculate=4, acceptance_ppm=ppm)).utilisation for ppm in (0, 1_000_000)
    )
    assert wrong and right
    assert 0.7 * H100.share.bandwidth < wrong.bandwidth < H100.share.bandwidth
    assert right.bandwidth == pytest.approx(wrong.bandwidth, rel=0.001)
    assert right.mfu == pytest.approx(5 * wrong.mfu, rel=0.01)


def test_a_long_prompt_does_not_make_lone_tokens_read_all_experts() -> None:
    """A device can't read more than it has bandwidth for; the mean step of the two would say three times that."""
    plan = make_plan(SHELF.model("qwen3-30b-a3b").spec, H100, PlanOptions(context_tokens=32_768)).plan
    long, short = (summary(plan, f"poisson:rate=1,input={prompt},output=5000").utilisation for prompt in (16_000, 1))
    assert long and short
    assert long.bandwidth < H100.share.bandwidth
    assert long.bandwidth == pytest.approx(short.bandwidth, rel=0.2)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_pool_of_experts_that_has_one_phase_only(phase: str) -> None:
    """The other phase is in another pool: weights and experts count in every step that this one had."""
    plan = make_plan(SHELF.model("gpt-oss-20b").spec, H100, PlanOptions(context_tokens=4096)).plan
    load = open_workload("constant:rate=1,input=512,output=33", requests=1, seed=1)
    stages = inprocess.run(plan, Scheduling(), load, seed=1, observer=Ignoring()).stages
    done = WorkDone()
    if phase == "prefill":
        done.prefill(record(512, 33))
    else:
        done.decode(record(512, 33), 32)
    found = utilisation(plan, stages, done)
    assert found and 0 < found.bandwidth < 1 and 0 < found.mfu < 1


def test_a_plan_without_work_has_no_utilisation() -> None:
    assert make_plan(SHELF.model("kimi-k3").spec, SHELF.device("wse-3t").device, PlanOptions()).plan.stages[0].work
    plan = make_plan(SHELF.model("llama-3.1-8b").spec, H100, PlanOptions()).plan
    assert utilisation(plan, [], WorkDone()) is None


def test_work_adds_up_to_the_model() -> None:
    """Stages together: 2 x active parameters per token, and all weights but the embedding for every step."""
    spec = SHELF.model("deepseek-v3").spec
    works = [stage.work for stage in make_plan(spec, H100, PlanOptions(devices=16)).plan.stages]
    found = [work for work in works if work]
    assert sum(w.token_flops + w.row_flops for w in found) == 2 * spec.active_params()
    total = sum(w.step_bytes + w.expert_bytes * w.experts for w in found)
    assert total == pytest.approx(spec.weight_bytes() - spec.embedding_bytes(), rel=1e-6)
