"""KV room against the start-up logs of serving engines, by their launch lines.

Releases of vLLM differ in what their sampler holds per row and entry of the vocabulary while memory is profiled: 10
bytes with FlashInfer or the kernels of the current profile, 28 where top-k and top-p sort.
"""

import json
from pathlib import Path

import pytest

import stageline
from stageline.catalog import loader
from stageline.cli.main import invoke as run

GIB = 1 << 30
SERVE = "vllm serve"


@pytest.fixture
def sorting(tmp_path: Path) -> str:
    """The profile of a release of vLLM whose sampler sorts."""
    text = (Path(loader.__file__).parent / "engines/vllm-v1.toml").read_text()
    path = tmp_path / "vllm-sorting.toml"
    path.write_text(text.replace("sampler_bytes = 10", "sampler_bytes = 28"))
    return str(path)


def start(capsys: pytest.CaptureFixture[str], line: str, device: str, *flags: str) -> dict[str, float]:
    """What the planned engine says when it starts."""
    assert run(["plan", "--like", line, device, "--json", *flags]) == 0, capsys.readouterr().err
    found: dict[str, float] = json.loads(capsys.readouterr().out)["engine_start"]
    return found


def test_llama_8b_with_the_defaults_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM 0.11: 79.11 GiB x 0.9, 14.99 GiB of weights, 8,192 batched tokens: 447,776 tokens, 3.42x."""
    found = start(capsys, f"{SERVE} meta-llama/Llama-3.1-8B-Instruct", "h100-sxm")
    assert found["kv_cache_tokens"] == pytest.approx(447_776, rel=0.005)
    assert found["max_concurrency"] == pytest.approx(3.42, abs=0.02)
    assert (found["max_num_seqs"], found["max_num_batched_tokens"], found["max_model_len"]) == (1024, 8192, 131_072)
    planned = stageline.plan_model("llama-3.1-8b", "h100-sxm").report().engine_start
    assert planned is not None and planned.kv_cache_tokens == found["kv_cache_tokens"]
    assert run(["plan", "--like", f"{SERVE} meta-llama/Llama-3.1-8B-Instruct", "h100-sxm"]) == 0
    out = capsys.readouterr().out
    assert f"GPU KV cache size: {found['kv_cache_tokens']:,} tokens" in out
    assert "Maximum concurrency for 131,072 tokens per request: 3.4" in out


@pytest.mark.parametrize(
    ("line", "device", "tokens"),
    [
        # vLLM 0.15, multi-turn measurements of docs/fidelity.md: KV blocks of 16 tokens
        ("meta-llama/Llama-3.1-70B-Instruct -tp 4 --max-num-seqs 128", "h100-sxm", 30_251 * 16),
        (
            "mistralai/Mistral-Nemo-Instruct-2407 -tp 2 --max-num-seqs 128 --max-num-batched-tokens 1024",
            "h100-sxm",
            48_009 * 16,
        ),
        ("Qwen/Qwen2.5-7B-Instruct --max-num-seqs 128 --max-num-batched-tokens 2048", "h100-sxm", 65_352 * 16),
        ("Qwen/Qwen2.5-7B-Instruct --max-num-seqs 128 --max-num-batched-tokens 1024", "h100-sxm", 65_368 * 16),
        # vLLM 0.9.2 with its defaults on an A100 with 40 GB, "FlashInfer is not available": 18.69 GiB
        ("Qwen/Qwen3-8B", "a100-40g", 136_080),
    ],
)
def test_dense_models_of_releases_that_sort(
    capsys: pytest.CaptureFixture[str], sorting: str, line: str, device: str, tokens: int
) -> None:
    found = start(capsys, f"{SERVE} {line}", device, "--serving-engine", sorting)
    assert found["kv_cache_tokens"] == pytest.approx(tokens, rel=0.005)


def test_defaults_on_a_smaller_device(capsys: pytest.CaptureFixture[str]) -> None:
    """As vLLM 0.9.2 logged on an A100 with 40 GB: 2,048 batched tokens, 3.32 requests of 40,960."""
    found = start(capsys, f"{SERVE} Qwen/Qwen3-8B", "a100-40g")
    assert (found["max_num_seqs"], found["max_num_batched_tokens"], found["max_model_len"]) == (256, 2048, 40_960)
    assert found["max_concurrency"] == pytest.approx(3.32, rel=0.04)


def test_llama_70b_fp8_on_one_h200(capsys: pytest.CaptureFixture[str], sorting: str) -> None:
    """Weights 67.72 GiB and 174,336 tokens, of a release that is not known: +5.3 %, or +1.8 % if it sorts."""
    line = f"{SERVE} meta-llama/Llama-3.1-70B-Instruct --quantization fp8"
    plan = stageline.plan_model("llama-3.1-70b", "h200", weights="fp8").plan
    assert plan.stages[0].weight_bytes == pytest.approx(67.72 * GIB, rel=0.002)
    room = [start(capsys, line, "h200")["kv_cache_tokens"] / 174_336]
    room += [start(capsys, line, "h200", "--serving-engine", sorting)["kv_cache_tokens"] / 174_336]
    assert room == pytest.approx([1.053, 1.018], abs=0.002)


def test_qwen3_235b_on_four_h100(capsys: pytest.CaptureFixture[str], sorting: str, shared_data: Path) -> None:
    """vllm#21348: tensor ranks without expert ranks, and LMCache as KV connector: 178,880 tokens in 8.11 GiB.

    SGLang on the same machine had 367,404. What is left of the differences is unexplained, and stays so.
    """
    config = shared_data / "configs/Qwen--Qwen3-235B-A22B-FP8.json"
    line = f"{SERVE} {config} --tensor-parallel-size 4"
    rooms = [start(capsys, line, "h100-sxm", "--serving-engine", sorting)["kv_cache_tokens"] / 178_880]
    line = f"python3 -m sglang.launch_server --model {config} --tp 4 --mem-fraction-static 0.93"
    rooms.append(start(capsys, line, "h100-sxm")["kv_cache_tokens"] / 367_404)
    print(f"Qwen3-235B-A22B-FP8 on 4 x H100: vLLM {rooms[0] - 1:+.1%}, SGLang {rooms[1] - 1:+.1%}, unexplained")
    assert rooms == pytest.approx([1.390, 1.067], abs=0.002)


def test_sglang_leaves_free_what_its_own_rule_says() -> None:
    """H100: 512 MiB + 1.5 x 8,192 + 2 x 256 + 128 per device of 81,063 MiB: 0.834; at least 10 GiB on such a device."""
    device = stageline.plan_model("llama-3.1-8b", "h100-sxm", serving_engine="sglang").report().stages[0].device
    room = device.weight_bytes + device.kv_bytes + 577_765_376
    assert room / 85e9 == pytest.approx(0.834, abs=0.0005)
    wide = stageline.plan_model("llama-3.1-8b", "h100-sxm", serving_engine="sglang", tensor_parallel=8)
    assert wide.options.memory_share == pytest.approx(0.817, abs=0.0005)  # 512 graph sizes, 8 devices
    small = stageline.plan_model("llama-3.1-8b", "h100-sxm", serving_engine="sglang", max_num_batched_tokens=2048)
    assert small.options.memory_share == pytest.approx(1 - 10_240 / 81_063, abs=0.0005)
    asked = stageline.plan_model("llama-3.1-8b", "h100-sxm", serving_engine="sglang", memory_share=0.7)
    assert asked.options.memory_share == 0.7


def test_plans_name_the_version_of_their_defaults() -> None:
    assert stageline.plan_model("llama-3.1-8b", "h100-sxm").plan.info["defaults"] == 2


def test_gpt_oss_20b_on_one_a100(capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM 0.19.0 logged "Model loading took 13.72 GiB" and "Available KV cache memory: 36.56 GiB" with this line.

    The checkpoint's text weights are 12.82 GiB: vLLM pads the experts, which leaves 3.1 % more room here.
    """
    line = f"{SERVE} openai/gpt-oss-20b --port 10000 --max-model-len 131072 --gpu-memory-utilization 0.65"
    assert run(["plan", "--like", line, "a100-80g", "--json"]) == 0, capsys.readouterr().err
    device = json.loads(capsys.readouterr().out)["stages"][0]["device"]
    assert device["kv_bytes"] == pytest.approx(1.0306 * 36.56 * GIB, rel=0.001)
