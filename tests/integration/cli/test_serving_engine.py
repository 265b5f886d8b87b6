"""What a serving engine means for plans and runs: sizes, limits, defaults, and how runs say what drove them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stageline.cli.main import invoke as run

LLAMA = ["plan", "llama-3.1-8b", "h100-sxm"]
K3 = ["plan", "kimi-k3", "wse-3t", "--placement", "by-kind", "--layer-bytes", "nominal"]
USERS = "closed:users=256,requests=512,input=256,output=128"


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    return dict(json.loads(capsys.readouterr().out))


def ran(capsys: pytest.CaptureFixture[str], plan: str, *words: str, load: str = USERS) -> dict[str, Any]:
    assert run(["run", plan, "--workload", load, "--json", *words]) == 0, capsys.readouterr().err
    return dict(json.loads(capsys.readouterr().out))


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = str(tmp_path / "plan.json")
    assert run([*LLAMA, "-o", path]) == 0
    capsys.readouterr()
    return path


def test_a_gpu_is_driven_as_vllm_drives_it(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One batch of all that is ready: more than three times what microbatches of 32 with two in flight gave."""
    default, old = ran(capsys, plan), ran(capsys, plan, "--preset", "vllm")
    assert default["output_tokens_per_s"] == pytest.approx(old["output_tokens_per_s"], rel=0.02)
    split = ran(capsys, plan, "--serving-engine", "pipeline", "--credits", "2", "--microbatch", "32")
    assert default["output_tokens_per_s"] > 2.5 * split["output_tokens_per_s"]
    assert not any("replica" in line["moved_by"] for line in default["binds"])
    settings = default["settings"]
    assert (settings["serving_engine"], settings["credits"], settings["batching"]) == ("vllm-v1", 1, "greedy")
    assert (settings["max_running"], settings["batched_tokens"], settings["prefix_cache"]) == (1024, 8192, True)


def test_a_wafer_pipeline_has_room_for_all_requests_that_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """921 requests fit 59 stages: ceil(921 / 59) = 16 in a microbatch, where a power of two left 8."""
    found = planned(capsys, *K3)
    assert (found["requests"], found["microbatch"], found["credits"]) == (921, 16, 59)
    assert found["serving"].startswith("pipeline")


@pytest.mark.parametrize("engine", ["vllm-v1", "sglang", "trtllm", "pipeline"])
def test_a_single_stage_has_one_batch_in_flight(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, *LLAMA, "--engine-profile", engine)
    assert found["credits"] == 1
    assert found["serving"].startswith(engine)


def test_limits_are_those_of_a_data_parallel_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four replicas run 4 x 8 requests; four ranks of attention inside one replica, too."""
    load, path = "closed:users=100,requests=100,input=16,output=4", str(tmp_path / "plan.json")
    assert run([*LLAMA, "--data-parallel-size", "4", "--max-num-seqs", "8", "-o", path]) == 0
    capsys.readouterr()
    assert ran(capsys, path, load=load)["settings"]["max_running"] == 8
    moe = "plan qwen3-30b-a3b h100-sxm --data-parallel-size 4 --enable-expert-parallel --max-num-seqs 8"
    assert run([*moe.split(), "--max-num-batched-tokens", "256", "-o", path]) == 0
    capsys.readouterr()
    settings = ran(capsys, path, load=load)["settings"]
    assert (settings["max_running"], settings["batched_tokens"]) == (4 * 8, 4 * 256)
    settings = ran(capsys, path, "--max-num-seqs", "2", "--max-num-batched-tokens", "64", load=load)["settings"]
    assert (settings["max_running"], settings["microbatch"], settings["batched_tokens"]) == (8, 8, 256)


def test_a_longer_request_than_the_limit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.json")
    assert run([*LLAMA, "--max-model-len", "1024", "-o", path]) == 0
    assert run(["run", path, "--workload", "poisson:rate=1,requests=4,input=1000,output=25", "--json"]) == 1
    assert "all 4 requests were refused" in capsys.readouterr().err
    assert run([*LLAMA, "--max-model-len", "1M"]) == 2
    assert "131,072" in capsys.readouterr().err


def test_blocks_given_are_the_blocks_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    assert run([*LLAMA, "--num-gpu-blocks-override", "1000", "-o", str(path)]) == 0
    stage = json.loads(path.read_text())["stages"][0]
    assert stage["kv_budget_bytes"] == 1000 * stage["kv_block_bytes"]
    capsys.readouterr()
    assert run([*LLAMA, "--num-gpu-blocks-override", "1000000"]) == 4
    assert "at most" in capsys.readouterr().err
    assert run(["plan", "kimi-k3", "wse-3t", "--num-gpu-blocks-override", "10"]) == 2
    assert "linear attention" in capsys.readouterr().err


def test_kv_bytes_given_are_those_of_every_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    given = [*LLAMA, "--tp", "2", "--kv-cache-memory-bytes", "4G"]
    assert run([*given, "--gpu-memory-utilization", "0.5", "-o", str(path)]) == 0
    assert json.loads(path.read_text())["stages"][0]["kv_budget_bytes"] == 2 * (4 << 30)
    assert run([*LLAMA, "--kv-cache-memory-bytes", "70G"]) == 4
    assert "beside its weights" in capsys.readouterr().err
    assert run([*LLAMA, "--kv-cache-memory-bytes", "4 GB"]) == 2
    assert "write it like 25G" in capsys.readouterr().err


@pytest.mark.parametrize(("model", "ranks"), [("gpt-oss-20b", "1"), ("llama-3.1-8b", "2")])
def test_the_way_out_of_too_little_given_kv_works(model: str, ranks: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With windows and with several ranks, and a byte less does not do."""
    asked = ["plan", model, "h100-sxm", "--concurrency", "16", "--tp", ranks]
    assert run([*asked, "--kv-cache-memory-bytes", "100000000"]) == 4
    found = re.search(r"--kv-cache-memory-bytes (\d+), or --max-model-len (\d+)", capsys.readouterr().err)
    assert found is not None
    size, length = found.groups()
    assert run([*asked, "--kv-cache-memory-bytes", size]) == 0
    assert run([*asked, "--kv-cache-memory-bytes", str(int(size) - 1)]) == 4
    assert run([*asked, "--kv-cache-memory-bytes", "100000000", "--max-model-len", length]) == 0


def test_the_longest_that_fits_is_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4 GiB hold 2,048 blocks of 16 tokens of 131,072 bytes each."""
    path = tmp_path / "plan.json"
    for auto in ("auto", "-1"):
        assert run([*LLAMA, "--kv-cache-memory-bytes", "4G", "--max-model-len", auto, "-o", str(path)]) == 0
        assert json.loads(path.read_text())["max_context_tokens"] == (4 << 30) // (131_072 * 16) * 16
        assert "would not start" not in capsys.readouterr().out
    assert run([*LLAMA, "--max-model-len", "auto", "-o", str(path)]) == 0
    assert json.loads(path.read_text())["max_context_tokens"] == 131_072


def test_the_prefix_cache_is_vllms_default(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = "sessions:rate=2,turns=3,system=1024,question=64,output=16,requests=20"
    assert ran(capsys, plan, load=load)["prefix_cache"]["token_hit_ratio"] > 0
    assert ran(capsys, plan, "--no-enable-prefix-caching", load=load)["prefix_cache"] is None
    without = str(tmp_path / "without.json")
    assert run([*LLAMA, "--no-enable-prefix-caching", "-o", without]) == 0
    capsys.readouterr()
    assert ran(capsys, without, load=load)["prefix_cache"] is None
    hybrid = planned(capsys, "plan", "qwen3.6-27b", "h100-sxm")
    assert "prefix cache off" in hybrid["serving"]  # as vLLM leaves it for hybrid models


def test_an_engine_of_ones_own(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], root: Path) -> None:
    shipped = (root / "stageline/catalog/engines/vllm-v1.toml").read_text()
    own = tmp_path / "mine.toml"
    own.write_text(shipped.replace('"vllm-v1"', '"mine"').replace("max_num_seqs = 1024", "max_num_seqs = 7"))
    assert ran(capsys, plan, "--serving-engine", str(own))["settings"]["max_running"] == 7
    own.write_text(own.read_text().replace('batching = "greedy"', 'batching = "gready"'))
    assert run([*LLAMA, "--serving-engine", str(own)]) == 2
    assert "gready" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--serving-engine", "vlm"], "known: pipeline, sglang, trtllm, vllm-v1"),
        (["--max-num-seqs", "4", "--max-running", "4"], "--max-num-seqs and --max-running"),
        (["--max-num-seqs", "0"], "--max-num-seqs"),
        (["--preset", "vllm", "--serving-engine", "sglang"], "--serving-engine alone"),
        (["--max-model-len", "4096"], "--max-model-len: fixed when the plan is made"),
    ],
)
def test_what_a_run_refuses(words: list[str], says: str, plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", plan, "--workload", USERS, *words]) == 2
    assert says in capsys.readouterr().err


def test_runs_say_how_they_were_planned_and_driven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, load = str(tmp_path / "plan.json"), "poisson:rate=4,requests=8,input=64,output=8"
    shape = ["--tp", "4", "--pp", "2", "--data-parallel-size", "2"]
    assert run(["plan", "llama-3.1-70b", "h100-sxm", *shape, "-o", path]) == 0
    for name, words in (("a", []), ("b", ["--serving-engine", "pipeline"])):
        assert run(["run", path, "--workload", load, "-o", str(tmp_path / name), *words]) == 0
    assert "TP4 PP2 x 2, bf16, vllm-v1" in capsys.readouterr().out
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["plan"]["command"] == "stageline plan llama-3.1-70b h100-sxm --tp 4 --pp 2 --data-parallel-size 2"
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    for word in ("serving_engine", "vllm-v1", "pipeline", "batching", "max_running"):
        assert word in out


def test_the_automatic_cut_counts_the_hosts_time(capsys: pytest.CaptureFixture[str]) -> None:
    """122 sequences x 40 us of host time are 4.9 ms of a step on stage 0, more than four layers take."""
    pipeline = ["plan", "llama-3.1-8b", "h200", "--devices", "8"]
    cut = planned(capsys, *pipeline)["stages"]
    even = planned(capsys, *pipeline, "--layer-partition", "4,4,4,4,4,4,4,4")["stages"]
    assert max(s["service_ns"] for s in cut) < 0.6 * max(s["service_ns"] for s in even)
    assert cut[0]["layers"] == "0"
