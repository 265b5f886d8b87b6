"""`stageline observe` from the command line, and what `stageline calibrate` refuses of an observation."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run
from stageline.load.observing import seen
from stageline.load.scrapes import Scrape
from tests.fake_openai import Fake, serving_beside

SPEC = "poisson:rate=500,requests=40,input=20,output=6"
VLLM = """# HELP vllm:num_requests_running
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} 1.0
vllm:kv_cache_usage_perc{{engine="0"}} 0.25
vllm:num_preemptions_total{{engine="0"}} {preempted}
vllm:prefix_cache_queries_total{{engine="0"}} {queries}
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
"""


@pytest.fixture
def fake() -> Iterator[Fake]:
    """A server in wall time, without metrics."""
    with serving_beside(Fake()) as server:
        yield server


def observed(fake: Fake, out: Path, *more: str) -> int:
    return run(["observe", fake.url, "--workload", SPEC, "-o", str(out), *more])


def test_an_observation_becomes_a_profile(fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, profile = tmp_path / "seen", tmp_path / "mine.json"
    assert observed(fake, out) == 0
    assert "metrics: none from" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {
        "observation.json", "metrics.jsonl", "requests.csv", "summary.json", "report.html",
    }  # fmt: skip
    kept = json.loads((out / "observation.json").read_text())
    assert (kept["clock"], kept["dilations"], kept["calls"]["finished"], kept["model"]) == ("wall", [], 40, "fake")
    assert run(["calibrate", str(out), "qwen2.5-1.5b", "h100-sxm", "-o", str(profile)]) == 0
    shown = capsys.readouterr().out
    assert "backtest: the half that was not" in shown and "front end per request" in shown
    plan = tmp_path / "plan.json"
    assert run(["plan", "qwen2.5-1.5b", "h100-sxm", "--profile", str(profile), "-o", str(plan)]) == 0
    fit = json.loads(profile.read_text())
    made = json.loads(plan.read_text())
    assert made["serving"].get("front_end_ns", 0) == fit["front_end_ns"]
    assert made["info"]["backtest_ttft_s"] == pytest.approx(abs(fit["backtest"][0]["mean"]), abs=1e-4)
    capsys.readouterr()
    assert run(["run", str(plan), "--workload", "poisson:rate=4,requests=8"]) == 0
    shown = capsys.readouterr().out
    assert "backtest" in shown and "profile mine" in shown


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shared_prefixes": True}, "common beginnings"),
        ({"metrics": {"url": "x", "scrapes": 2, "prefix_hit_ratio": 0.4}}, "common beginnings"),
        ({"metrics": {"url": "x", "scrapes": 2, "running_peak": 300}}, "ran 300 requests at once"),
        ({"calls": {"total": 40, "finished": 30}}, "10 of 40 calls did not finish"),
        ({"dilations": ["2", "3"]}, "changed its dilation"),
        ({"format": "stageline-observation/9"}, "observe the server again"),
        ({"surprise": 1}, "not an observation"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    change: dict[str, object], says: str, fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert observed(fake, tmp_path) == 0
    path = tmp_path / "observation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    capsys.readouterr()
    assert run(["calibrate", str(tmp_path), "qwen2.5-1.5b", "h100-sxm", "-o", str(tmp_path / "p.json")]) == 2
    assert says in capsys.readouterr().err


def test_what_cannot_be_observed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--workload", SPEC, "-o", str(tmp_path)]
    assert run(["observe", "grpc://localhost:1", *words]) == 2
    assert "http(s) URL" in capsys.readouterr().err
    assert run(["observe", "http://localhost:1", "--every", "0", *words]) == 2
    assert "--every" in capsys.readouterr().err
    assert run(["observe", "http://localhost:1", *words]) == 1
    assert "no server answers" in capsys.readouterr().err


def test_what_metrics_say() -> None:
    texts = [
        VLLM.format(running=3, preempted=5, queries=100, hits=50),
        VLLM.format(running=7, preempted=6, queries=300, hits=90),
        VLLM.format(running=0, preempted=9, queries=500, hits=150),
    ]
    found = seen([Scrape(i, "during", text) for i, text in enumerate(texts)], "http://x/metrics", "")
    assert (found.engine, found.running_peak, found.waiting_peak, found.kv_usage_peak) == ("vllm", 7, 1, 0.25)
    assert (found.preemptions, found.prefix_hit_ratio) == (4, 0.25)
    other = seen([Scrape(0, "before", 'sglang:num_running_reqs{tp="0"} 4\nsglang:token_usage 0.5\n')], "x", "")
    assert (other.engine, other.running_peak, other.kv_usage_peak, other.preemptions) == ("sglang", 4, 0.5, None)
