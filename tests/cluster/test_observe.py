"""A live cluster as the unknown server: what is observed of it gives back the constants that it was planned with."""

from pathlib import Path

import msgspec
import pytest

from stageline.api.fitting import MeasuredRun, Serving, emulate, fit_efficiencies
from stageline.catalog.loader import Catalog
from stageline.cost.efficiencies import Efficiencies
from stageline.engine.types import Request
from stageline.load.clock import WallClock
from stageline.load.observation import OBSERVATION_FILE
from stageline.load.observed import observed_timings
from stageline.load.observing import observe
from stageline.load.options import LoadOptions
from stageline.load.scrapes import read_scrapes
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.workload import open_workload
from stageline.workload.timings import MeasuredTimes, Timings
from tests.cluster.live import live

SHELF = Catalog()
SPEC, DEVICE = SHELF.model("llama-3.1-8b").spec, SHELF.device("h100-sxm").device
TRUE = Efficiencies(
    name="true", model="llama-3.1-8b", device="h100-sxm", flops_share=0.45, bandwidth_share=0.6, step_ns=3_000_000
)
SERVING = Serving(max_num_seqs=64, batched_tokens=2048)
SENT = "poisson:rate=8,requests=60,input=lognormal(1200,cv=1.5),output=lognormal(50,cv=0.8)"
OTHERS = tuple(
    Request(index=i, arrival_ns=i * 40_000_000, prompt_tokens=300, output_tokens=80, max_output_tokens=80)
    for i in range(60)
)


async def test_the_constants_of_an_unknown_server_come_back(tmp_path: Path) -> None:
    plan = make_plan(SPEC, DEVICE, PlanOptions(efficiencies=TRUE, microbatch=64)).plan
    settings = {"dilation": "0.3", "scheduling": '{"batching":"greedy","kv":"grow","max_running":64}'}
    async with live(plan, **settings) as cluster:
        options = LoadOptions(url=cluster.url, directory=tmp_path)
        found, _ = await observe(options, open_workload(SENT), WallClock(), lambda progress: None, every_s=0.2)
    (tmp_path / OBSERVATION_FILE).write_bytes(msgspec.json.encode(found))

    assert (found.clock, found.dilations, found.calls["finished"]) == ("emulated", ("0.3",), 60)
    assert found.metrics.engine == "vllm" and found.metrics.preemptions == 0
    scrapes = read_scrapes(tmp_path)
    assert [scrapes[0].phase, scrapes[1].phase, scrapes[-1].phase] == ["before", "during", "after"]
    passed = scrapes[-1].samples().since(scrapes[0].samples())
    assert passed.total("vllm:request_success_total") == 60

    measured = MeasuredRun(SPEC, DEVICE, observed_timings(tmp_path, 64), SERVING)
    fit = fit_efficiencies(measured, "mine", "test")
    assert fit.flops_share == pytest.approx(TRUE.flops_share, rel=0.08)
    assert step_us(fit) == pytest.approx(step_us(TRUE), rel=0.05)
    assert all(abs(r.mean or 0) < 0.1 for r in fit.backtest if r.of != "TTFT")
    for ours, real in zip(tpots(fit), tpots(TRUE), strict=True):  # a load that was never observed
        assert ours == pytest.approx(real, rel=0.06)


def step_us(fit: Efficiencies) -> float:
    """A step of one sequence: its weights and the host. Most steps tell only the sum of both."""
    weights_us = SPEC.weight_bytes() * 1e6 / (DEVICE.bandwidth_bytes_per_s * fit.bandwidth_share)
    return weights_us + (fit.step_ns + fit.sequence_ns) / 1e3


def tpots(fit: Efficiencies) -> list[int]:
    """Of a quicker stream of shorter prompts."""
    nothing = (MeasuredTimes(1, 1, 1),) * len(OTHERS)
    times = emulate(MeasuredRun(SPEC, DEVICE, Timings(OTHERS, nothing, 0), SERVING), efficiencies=fit)
    return [t.tpot_ns or 0 for t in times]
