"""Interleaved placement: a stage holds several runs of layers, each of them a visit."""

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.errors import BadInput, DoesNotFit
from stageline.plan.build import Planned, make_plan
from stageline.plan.check import check_plan
from stageline.plan.explain import explain
from stageline.plan.options import PlanOptions
from stageline.report.run_writer import RunWriter
from stageline.report.summary import RunFacts, Summary
from stageline.testing import ListWorkload

SHELF = Catalog()
LLAMA = SHELF.model("llama-3.1-70b").spec
H100 = msgspec.structs.replace(
    SHELF.device("h100-sxm").device, memory_bytes=80 * 10**9, costs=None
)  # a round number, one share for all kinds and formats


def planned(devices: int | None, chunks: int, context: int | None = None, microbatch: int | None = None) -> Planned:
    placement = "interleaved" if chunks > 1 else "fewest"
    options = PlanOptions(
        devices=devices, placement=placement, chunks=chunks, context_tokens=context, microbatch=microbatch
    )
    return make_plan(LLAMA, H100, options)


@pytest.mark.parametrize("chunks", [2, 5, 10])
def test_visits_go_round_the_stages(chunks: int) -> None:
    found = planned(8, chunks)
    plan = found.plan
    check_plan(plan, "plan")
    assert [visit.stage for visit in plan.visits] == list(range(8)) * chunks
    assert [layer for visit in plan.visits for layer in visit.layers] == list(range(80))
    assert all(9 <= len(stage.layers) <= 11 for stage in plan.stages)
    assert all(len({v.layers for v in plan.visits if v.stage == s}) == chunks for s in range(8))
    assert plan.info["chunks"] == chunks
    assert any(f"{8 * chunks} visits per token" in line for line in explain(LLAMA, found))


def test_the_work_stays_and_hops_are_added() -> None:
    """L grows only by the latency and bytes of the hops, T not at all: the same layers on the same devices."""
    plain, twice = planned(8, 1), planned(8, 2)
    assert twice.timing.stage_ns == pytest.approx(plain.timing.stage_ns, abs=2)
    assert abs(twice.timing.busiest_ns - plain.timing.busiest_ns) <= 2
    hops = twice.timing.network_ns - plain.timing.network_ns
    assert hops == sum(link.latency_ns for link in twice.plan.links[1:]) - sum(
        link.latency_ns for link in plain.plan.links[1:]
    )
    assert hops <= twice.timing.trip_ns - plain.timing.trip_ns < 2 * hops
    assert [s.kv_block_bytes for s in twice.plan.stages] == [s.kv_block_bytes for s in plain.plan.stages]


def run(found: Planned, requests: list[Request]) -> Summary:
    with RunWriter(found.plan) as writer:
        totals = inprocess.run(found.plan, Scheduling(), ListWorkload(requests), seed=0, observer=writer, paranoid=True)
        facts = RunFacts(engine="inprocess", seed=0, command="", workload="", rows={}, wall_s=0.0, credits=8)
        return writer.finish(totals, facts)


def test_a_lone_token_pays_for_the_hops_and_the_slowest_prompts_wait_less() -> None:
    plain, many = planned(8, 1, microbatch=8), planned(8, 5, microbatch=8)
    lone = [Request(index=0, arrival_ns=0, prompt_tokens=1, output_tokens=9, max_output_tokens=9)]
    assert run(many, lone).tpot_s.mean > run(plain, lone).tpot_s.mean  # type: ignore[operator]
    load = [
        Request(index=i, arrival_ns=i * 120_000_000, prompt_tokens=512, output_tokens=32, max_output_tokens=32)
        for i in range(60)
    ]
    assert run(many, load).ttft_s.p99 < 0.9 * run(plain, load).ttft_s.p99  # type: ignore[operator]


def test_as_few_stages_as_fit() -> None:
    """Two devices with 72 usable GB can't hold 141 GB of weights in whole layers, three can."""
    found = planned(None, 2)
    assert len(found.plan.stages) == 3 and [v.stage for v in found.plan.visits] == [0, 1, 2, 0, 1, 2]


def test_what_does_not_fit_names_the_stage_and_the_hint() -> None:
    with pytest.raises(DoesNotFit, match=r"stage-\d needs .* bytes short; smallest change: --devices 3"):
        planned(2, 2)
    with pytest.raises(BadInput, match=r"--chunks: 8 stages of 11 chunks need 88 layers, .*use fewer chunks or stages"):
        planned(8, 11)
    with pytest.raises(DoesNotFit, match="fewer --chunks"):
        planned(None, 80, context=1 << 22)
