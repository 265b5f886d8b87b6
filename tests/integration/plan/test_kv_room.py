"""KV room against start-up logs of vLLM: what CUDA tells a process x 0.9, less weights, activations and engine."""

from pathlib import Path

import pytest

import stageline


def kv_tokens(model: str, device: str, batched_tokens: int, **options: object) -> int:
    """The tokens that one device's ledger holds, activations and engine taken from it as vLLM does."""
    plan = stageline.plan_model(model, device, activations="kv", batched_tokens=batched_tokens, **options).plan  # type: ignore[arg-type]
    (stage,) = plan.stages
    return stage.kv_budget_bytes // stage.kv_block_bytes * plan.block_tokens


def test_llama_8b_on_one_h100() -> None:
    """vLLM 0.11: 79.11 GiB x 0.9, 14.99 GiB of weights, 8,192 batched tokens: 447,776 tokens."""
    assert kv_tokens("llama-3.1-8b", "h100-sxm", 8192) == pytest.approx(447_776, rel=0.02)


def test_llama_70b_fp8_on_one_h200() -> None:
    """Weights 67.72 GiB and 174,336 tokens. The log does not say how many batched tokens were profiled.

    With vLLM's two defaults for this device, 8,192 (server) and 16,384 (offline), the ledger has 5.3 % and 2.4 % more
    room than the log; what is left is unexplained.
    """
    plan = stageline.plan_model("llama-3.1-70b", "h200", weights="fp8").plan
    assert plan.stages[0].weight_bytes == pytest.approx(67.72 * 2**30, rel=0.002)
    room = [kv_tokens("llama-3.1-70b", "h200", n, weights="fp8") / 174_336 for n in (8192, 16384)]
    assert room == pytest.approx([1.053, 1.024], abs=0.002)


def test_qwen3_235b_on_four_h100(shared_data: Path) -> None:
    """178,880 tokens, with flags that are not known. Most of the difference is unexplained, and stays so."""
    config = str(shared_data / "configs/Qwen--Qwen3-235B-A22B-FP8.json")
    room = kv_tokens(config, "h100-sxm", 8192, tensor_parallel=4, expert_parallel=4) / 178_880
    print(f"Qwen3-235B-A22B-FP8 on 4 x H100: {room - 1:+.1%} against the log, unexplained")
    assert room > 1
