"""Training: the arithmetic reproduces published numbers."""

import json
from math import ceil

import pytest

from stageline.catalog.loader import Catalog
from stageline.cli.main import invoke as run
from stageline.plan.training import (
    Training,
    flops_per_token,
    state_bytes,
    train,
    training_activation_bytes,
    training_bubble_ratio,
)

SHELF = Catalog()
H100 = SHELF.device("h100-sxm").device
LARGE, SMALL = SHELF.model("llama-3.1-405b").spec, SHELF.model("llama-3.1-70b").spec
GB80 = 80 * 10**9
BARE = ["plan", "llama-3.1-405b", "h100-sxm", "--training"]


def test_seventy_billion_parameters() -> None:
    """70e9 parameters take 1.12 TB, fourteen devices of 80 GB; the real model needs fifteen. fp32 weights: 280 GB."""
    assert state_bytes(70 * 10**9) == 1_120 * 10**9
    assert [ceil(state_bytes(n) / GB80) for n in (70 * 10**9, SMALL.total_params())] == [14, 15]
    assert 4 * 70 * 10**9 == 280 * 10**9


@pytest.mark.parametrize(
    ("tp", "cp", "pp", "devices", "dp", "tflops", "published"),
    [(8, 1, 16, 8192, 64, 430, 0.43), (8, 1, 16, 16_384, 128, 400, 0.41), (8, 16, 16, 16_384, 8, 380, 0.38)],
)
def test_llama_3_405b_rows(tp: int, cp: int, pp: int, devices: int, dp: int, tflops: int, published: float) -> None:
    """Data ranks follow from the other axes, and measured rate / peak is the published MFU within 0.7 points."""
    assert devices // (tp * cp * pp) == dp
    assert Training(tp=tp, cp=cp, pp=pp, dp=dp).devices == devices
    assert abs(tflops * 1e12 / H100.peak_flops.bf16 - published) < 0.011
    assert abs(tflops * 1e12 / H100.peak_flops.bf16 - {430: 0.435, 400: 0.404, 380: 0.384}[tflops]) < 0.007


def test_the_four_maxima_can_not_hold_at_once() -> None:
    most = Training(tp=8, cp=16, pp=16, dp=128)
    assert most.devices == 262_144 == 16 * 16_384


def test_zero_stages_shard_one_thing_after_the_other() -> None:
    shape = {"tp": 8, "pp": 16, "dp": 64}
    found = [train(LARGE, H100, Training(zero=z, **shape)) for z in range(4)]
    shard = LARGE.total_params() / 128
    assert found[0].weight_bytes + found[0].gradient_bytes + found[0].optimiser_bytes == pytest.approx(16 * shard)
    assert found[1].optimiser_bytes == pytest.approx(12 * shard / 64)
    assert found[2].gradient_bytes == pytest.approx(2 * shard / 64)
    assert found[3].weight_bytes == pytest.approx(2 * shard / 64)
    assert found[1].fits and found[1].total_bytes > found[3].total_bytes
    alone = train(LARGE, H100, Training())
    assert not alone.fits


def test_recomputing_trades_memory_for_time() -> None:
    shape = {"tp": 8, "pp": 16, "dp": 64, "batch_sequences": 16}
    kept, again = (train(LARGE, H100, Training(recompute=r, **shape)) for r in (False, True))
    assert again.activation_bytes < kept.activation_bytes / 5
    assert again.mfu == pytest.approx(0.75 * kept.mfu)
    assert training_activation_bytes(LARGE, 0, Training(recompute=True)) == 2 * 8192 * LARGE.hidden


def test_bubbles() -> None:
    """(p - 1) / (m + p - 1); interleaved (p - 1) / (v m) of the ideal time."""
    assert training_bubble_ratio(4, 12) == pytest.approx(3 / 15)
    assert training_bubble_ratio(1, 1) == 0
    interleaved = training_bubble_ratio(16, 16, 2)
    assert interleaved / (1 - interleaved) == pytest.approx(15 / 32)


def test_six_flops_per_parameter_and_token() -> None:
    attention = 3 * 4 * 128 * 128 * 126 * 8192 // 2
    assert flops_per_token(LARGE, 8192) == 6 * LARGE.active_params() + attention


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = "plan llama-3.1-405b h100-sxm --training --tp 8 --pp 16 --replicas 128 --batch 16 --recompute"
    words += " --tokens 15600000000000 --price 2"
    assert run([*words.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["devices"] == 16_384
    seconds = 15.6e12 * found["flops_per_token"] / (found["mfu"] * 989e12 * 16_384)
    assert found["days"] == pytest.approx(seconds / 86_400)
    assert found["money"] == pytest.approx(found["days"] * 24 * 16_384 * 2)
    assert run([*BARE]) == 4
    assert "bytes more" in capsys.readouterr().err
    assert run([*BARE, "--zero", "4"]) == 2
    assert run([*BARE, "--pp", "200"]) == 2
