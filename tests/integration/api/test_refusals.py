"""Every error of the API is a StagelineError that names the argument and the way out."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest

import stageline
from stageline.workload import open_workload

LOAD = "poisson:rate=20,requests=4,input=64,output=4"
api: Any = stageline  # called with what its types forbid
Call = Callable[[stageline.ModelPlan, stageline.RunResult], object]


@pytest.fixture(scope="module")
def ran(small: stageline.ModelPlan) -> stageline.RunResult:
    """A short run."""
    return stageline.run(small, LOAD)


def search(**keywords: Any) -> object:
    """A search that would take long if it were not refused."""
    return api.search("llama-3.1-8b", "h100-sxm", **({"devices": 2, "workload": LOAD} | keywords))


def plan(**keywords: Any) -> object:
    """A plan of a small model."""
    return api.plan_model("llama-3.1-8b", "h100-sxm", **keywords)


RUN_KEYWORDS: list[tuple[dict[str, Any], str]] = [
    ({"seed": 1.5}, "run: seed=1.5: give a whole number"),
    ({"seed": "1"}, "run: seed='1': give a whole number"),
    ({"seed": None}, "run: seed=None: give a whole number"),
    ({"seed": True}, "run: seed=True: give a whole number"),
    ({"requests": 2.5}, "run: requests=2.5: give a whole number or None"),
    ({"requests": "3"}, "run: requests='3'"),
    ({"rate_scale": None}, "run: rate_scale=None"),
    ({"rate_scale": float("nan")}, "--rate-scale"),
    ({"rate_scale": -1}, "--rate-scale"),
    ({"slo": 5}, "run: slo=5: give a text such as ttft=2s"),
    ({"cluster": "nowhere"}, "run: cluster='nowhere': give the HOST:PORT"),
    ({"cluster": 5}, "run: cluster=5: give the HOST:PORT"),
    ({"cluster": "localhost:99999"}, "HOST:PORT"),
    ({"output": 5}, "run: output=5: give a text or a path"),
    ({"serving_engine": 5}, "run: serving_engine=5"),
    ({"serving_engine": "vlm"}, "vllm"),
    ({"preset": "VLLM"}, "run: preset='VLLM': give 'vllm'"),
    ({"preset": ["vllm"]}, "run: preset=['vllm']"),
    ({"preset": "vllm", "serving_engine": "vllm-v1"}, "give serving_engine alone"),
    ({"keep_requests": "no"}, "run: keep_requests='no': give True or False"),
    ({"sort": "x"}, "run: sort='x': give True or False"),
    ({"skip_bad_rows": 1}, "run: skip_bad_rows=1"),
    ({"events": 1}, "run: events=1"),
    ({"paranoid": None}, "run: paranoid=None"),
    ({"microbatch": 0}, "run: microbatch=0: give a whole number from 1"),
    ({"acceptance_ppm": 0.7}, "run: acceptance_ppm=0.7: give a whole number from 0 to 1,000,000"),
    ({"bogus": 1}, "it takes seed, requests, rate_scale"),
    ({"acceptance": 0.7}, "did you mean acceptance_ppm?"),
    ({"draft_cost": 1}, "did you mean draft_ns?"),
    ({"sede": 1}, "did you mean seed?"),
    ({"tp": 2}, "give tensor_parallel to plan_model"),
]
PLAN_KEYWORDS: list[tuple[dict[str, Any], str]] = [
    ({"placement": "nope"}, "plan_model: placement='nope': give 'fewest', 'by-kind' or 'interleaved'"),
    ({"axes": ("up",)}, "plan_model: axes=('up',): give a tuple of some of 'tp', 'ep', 'cp', 'pp', 'dp'"),
    ({"tp": 2}, "did you mean tensor_parallel?"),
    ({"ep": 2}, "did you mean expert_parallel?"),
    ({"axis_order": "tp"}, "did you mean axes?"),
    ({"bogus": 2}, "it takes catalog, devices"),
    ({"kv": "grow"}, "give kv to run"),
    ({"catalog": "nope"}, "nope: no such directory"),
    ({"catalog": 5}, "plan_model: catalog=5: give a path, or a list of paths"),
    ({"catalog": [5]}, "plan_model: catalog=5: give a text or a path"),
    ({"memory_share": "most"}, "plan_model: memory_share='most': give a number or None"),
    ({"expert_imbalance": float("nan")}, "--expert-imbalance nan"),
    ({"serving_engine": "vlm"}, "vllm"),
]
SEARCH_KEYWORDS: list[tuple[dict[str, Any], str]] = [
    ({"devices": 1.5}, "search: devices=1.5: give a whole number"),
    ({"devices": "x"}, "search: devices='x': give a whole number"),
    ({"devices": "4..x"}, "search: devices='4..x'"),
    ({"devices": "16..4"}, "search: devices='16..4': must lie between 1 and 4,096, the smaller number first"),
    ({"devices": "1..999999999"}, "must lie between 1 and 4,096"),
    ({"devices": None}, "search: devices=None"),
    ({"devices": True}, "search: devices=True"),
    ({"devices": []}, "--devices"),
    ({"microbatches": "1,x"}, "search: microbatches='1,x': give a whole number, several, or a text such as '1,8,64'"),
    ({"microbatches": 1.5}, "search: microbatches=1.5"),
    ({"microbatches": "0"}, "--microbatches"),
    ({"jobs": 1.5}, "search: jobs=1.5: give a whole number"),
    ({"seed": "1"}, "search: seed='1'"),
    ({"requests": "3"}, "search: requests='3'"),
    ({"max_context_parallel": "1"}, "search: max_context_parallel='1'"),
    ({"price": "2"}, "search: price='2': give a number or None"),
    ({"slo": 5}, "search: slo=5: give a text or None"),
    ({"slo": ""}, "--slo"),
    ({"scheduling": {}}, "search: scheduling={}: give a Scheduling or None"),
    ({"dask_scheduler": 5}, "search: dask_scheduler=5"),
    ({"resume": 5}, "search: resume=5"),
    ({"catalog": "nope"}, "nope: no such directory"),
    ({"workload": None}, "search: workload=None"),
    ({"tp": 2}, "no keyword 'tp': a search tries every division"),
    ({"kv": "grow"}, "give scheduling=stageline.Scheduling(kv=...), or several in vary="),
]
CALLS: list[tuple[Call, str]] = [
    (lambda small, ran: api.run(None, LOAD), "run: plan=None: give what plan_model returned, a Plan, or the path"),
    (lambda small, ran: api.run(small, None), "run: workload=None: give a trace file, or a text such as"),
    (lambda small, ran: api.run(small, 5), "run: workload=5"),
    (lambda small, ran: api.run(small, open_workload(LOAD), requests=2), "give them to open_workload"),
    (lambda small, ran: api.run(small, LOAD, queueing="json:nope"), "--queueing json:nope"),
    (lambda small, ran: api.run(small, b"x"), "run: workload=b'x'"),
    (lambda small, ran: api.read_plan(None), "read_plan: path=None: give a text or a path"),
    (lambda small, ran: api.read_plan("a\0b"), "read_plan: path='a\\x00b': "),
    (lambda small, ran: api.read_run(5), "read_run: directory=5"),
    (lambda small, ran: api.read_run("a\0b"), "read_run: directory='a\\x00b'"),
    (lambda small, ran: api.compare(ran, 5), "compare: run=5"),
    (lambda small, ran: api.compare(), "two run directories"),
    (lambda small, ran: api.compare(ran, ran).rows[0].verdict(5), "there is no run 5: 2 are compared"),
    (lambda small, ran: api.compare(ran, ran).rows[0].change(None), "there is no run None"),
    (lambda small, ran: api.ModelPlan.write(small, None), "write: path=None"),
    (lambda small, ran: api.plan_model(None, "h100-sxm"), "plan_model: model=None"),
    (lambda small, ran: api.plan_model("llama-3.1-8b", 5), "plan_model: device=5"),
    (lambda small, ran: api.search(None, "h100-sxm", devices=2, workload=LOAD), "search: models=None"),
    (lambda small, ran: api.search([], "h100-sxm", devices=2, workload=LOAD), "search: models=[]: give a name"),
    (lambda small, ran: api.plan_model("a" * 300 + "/b", "h100-sxm"), "too long"),
    (lambda small, ran: api.plan_model("llama-3.1-8b", "h100-sxm", profile="a/\0"), "can't be read"),
    (lambda small, ran: api.plan_model("llama-3.1-8b", "h100-sxm", catalog="a" * 300), "too long"),
    (lambda small, ran: api.search([5], "h100-sxm", devices=2, workload=LOAD), "search: models=5"),
    (lambda small, ran: api.run(small, LOAD, keep_requests=False).rows(), "did not keep its 4 requests"),
    (lambda small, ran: api.run(small, LOAD, keep_requests=False).to_pandas(), "did not keep its 4 requests"),
]


def keyword_calls() -> list[tuple[Call, str]]:
    """The keywords above as calls."""
    runs = [(partial(lambda keywords, small, _: api.run(small, LOAD, **keywords), k), says) for k, says in RUN_KEYWORDS]
    plans = [(partial(lambda keywords, small, ran: plan(**keywords), k), says) for k, says in PLAN_KEYWORDS]
    searches = [(partial(lambda keywords, small, ran: search(**keywords), k), says) for k, says in SEARCH_KEYWORDS]
    return [*runs, *plans, *searches]


@pytest.mark.parametrize(("call", "says"), [*CALLS, *keyword_calls()])
def test_every_error_is_one_of_ours(
    small: stageline.ModelPlan, ran: stageline.RunResult, call: Call, says: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(stageline.StagelineError) as raised:
        call(small, ran)
    assert says in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_is_the_address_of_its_router(small: stageline.ModelPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(*_: object, address: str, **__: object) -> None:
        asked.append(address)
        raise stageline.StagelineError("stopped here")

    monkeypatch.setattr("stageline.cluster.client_run.run_on_cluster", refuse)
    with pytest.raises(stageline.StagelineError, match="stopped here"):
        stageline.run(small, LOAD, cluster="localhost:1")
    assert asked == ["localhost:1"]


def test_forms_that_are_accepted(small: stageline.ModelPlan, ran: stageline.RunResult, tmp_path: Path) -> None:
    """The command's texts, one path where several can be given, and numpy's numbers."""
    (tmp_path / "models").mkdir()
    one = stageline.plan_model("llama-3.1-8b", "h100-sxm", devices=2, catalog=str(tmp_path))
    assert one.plan == small.plan
    assert api.run(small, LOAD, seed=numpy.int64(0), requests=numpy.int64(4)).summary.digest == ran.summary.digest
    found = stageline.search("llama-3.1-8b", "h100-sxm", devices="1..2", microbatches="1,8", workload=LOAD)
    assert {trial.devices for trial in found.trials} == {1, 2}
    assert {trial.microbatch for trial in found.trials} == {1, 8}
    same = stageline.search("llama-3.1-8b", "h100-sxm", devices=[1, 2], microbatches=[1, 8], workload=LOAD)
    assert same == found
    eight = stageline.search("llama-3.1-8b", "h100-sxm", devices="1", microbatches=8, workload=LOAD)
    assert {(trial.devices, trial.microbatch) for trial in eight.trials} == {(1, 8)}
