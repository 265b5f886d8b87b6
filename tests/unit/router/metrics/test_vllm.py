"""The serving metrics: what goes on over runs."""

import pytest

from router.metrics.vllm import ServingMetrics
from stageline.engine.conductor import Conductor
from stageline.engine.inprocess import drive, make_pipelines
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.sequence import Sequence
from stageline.engine.served import one_pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.testing import Ignoring, ListWorkload, request, uniform_plan
from tests.unit.engine.builders import plan

DRAFTING = Scheduling(speculate=4, acceptance_ppm=1_000_000)


def samples(metrics: ServingMetrics, name: str) -> list[float]:
    """By replica."""
    return [s.value for family in metrics.collect() for s in family.samples if s.name == name]


@pytest.mark.parametrize("later", [DRAFTING, Scheduling()])
def test_counts_of_drafts_go_on_over_runs(later: Scheduling) -> None:
    route = Route(plan(replicas=2))
    metrics = ServingMetrics(one_pool(route, DRAFTING))
    assert samples(metrics, "vllm:spec_decode_num_drafts_total") == [0, 0]
    request = Request(index=0, arrival_ns=0, prompt_tokens=1, output_tokens=3, max_output_tokens=9)
    for settings in (DRAFTING, DRAFTING, later):
        router = Router(one_pool(route, settings), 0, Ignoring())
        metrics.begin(router)
        drafting = router.replicas[1].speculation
        if drafting is not None:
            assert drafting.verify(Sequence(request, 1), 4) == (4, 2)  # all right, and two of them still wanted
    times = 3 if later is DRAFTING else 2
    assert samples(metrics, "vllm:spec_decode_num_drafts_total") == [0, times]
    assert samples(metrics, "vllm:spec_decode_num_draft_tokens_total") == [0, 4 * times]
    assert samples(metrics, "vllm:spec_decode_num_accepted_tokens_total") == [0, 2 * times]


def test_what_the_prefix_cache_could_evict_is_not_in_use() -> None:
    plan = uniform_plan(2, kv_block_bytes=10, kv_budget_bytes=1000)
    fleet = one_pool(Route(plan), Scheduling(prefix_cache=True, hash_block_tokens=16))
    router, metrics = Router(fleet, 0, Ignoring()), ServingMetrics(fleet)
    metrics.begin(router)
    asked = request(prompt_tokens=64, output_tokens=8, hash_ids=(1, 2, 3, 4))
    conductor = Conductor(router, ListWorkload([asked]))
    conductor.advance()
    assert samples(metrics, "vllm:kv_cache_usage_perc") == [pytest.approx(0.05)]  # five blocks of 16 tokens
    drive(conductor, make_pipelines(router.fleet, 0))
    assert router.finished == 1 and router.replicas[0].mirror.used_bytes(0) == 40
    assert samples(metrics, "vllm:kv_cache_usage_perc") == [0]
