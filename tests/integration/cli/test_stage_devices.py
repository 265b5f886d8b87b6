"""`--stage-devices`: planned, run, reported and compared from the command line."""

import json
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run

MIXED = ["llama-3.1-8b", "--stage-devices", "h100-sxm,l40s"]
WORK = ["--workload", "closed:users=4,requests=8,input=64,output=8"]


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["plan", *words, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_split_over_two_kinds_of_gpu(capsys: pytest.CaptureFixture[str], shared_data: Path) -> None:
    """vllm#34076: layers 16,32 on 16 and 32 GB. vLLM 0.15 logged 3.18 GiB of KV cache for the smaller card."""
    config = str(shared_data / "configs/Qwen--Qwen3-30B-A3B.json")
    line = f"VLLM_PP_LAYER_PARTITION=16,32 vllm serve {config} --gpu-memory-utilization 0.9 --pipeline-parallel-size 2"
    flags = ("--weights", "fp8", "--stage-devices", "rtx-5070-ti,rtx-5090")
    found = planned(capsys, "--like", line, *flags)
    small, large = found["stages"]  # type: ignore[misc]
    assert (small["hardware"], small["layers"]) == ("rtx-5070-ti", "0-15")  # type: ignore[has-type]
    assert (large["hardware"], large["layers"]) == ("rtx-5090", "16-47")  # type: ignore[has-type]
    assert small["free_bytes"] == pytest.approx(3.18 * 2**30, rel=0.05)  # type: ignore[has-type]
    assert found["device"] == "rtx-5070-ti + rtx-5090"
    text = planned(capsys, *MIXED, "--layer-partition", "20,12", "--explain")["explanation"]
    assert "stage-0 20 layers on h100-sxm (76.50 GB), stage-1 12 layers on l40s (42.90 GB)" in text[0]  # type: ignore[index]


def test_runs_reports_and_comparisons_name_the_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, plain = str(tmp_path / "plan.json"), str(tmp_path / "plain.json")
    assert run(["plan", *MIXED, "-o", plan]) == 0
    assert "h100-sxm + l40s" in capsys.readouterr().out
    assert run(["plan", "llama-3.1-8b", "h100-sxm", "--pp", "2", "-o", plain]) == 0
    for path, out in ((plan, "mixed"), (plain, "same")):
        assert run(["run", path, *WORK, "-o", str(tmp_path / out)]) == 0
    summary = json.loads((tmp_path / "mixed/summary.json").read_bytes())
    assert summary["plan"]["stage_devices"] == "h100-sxm,l40s"
    assert summary["topology"]["device"] == "h100-sxm + l40s"
    capsys.readouterr()
    assert run(["report", str(tmp_path / "mixed"), "--no-html", "--no-chart"]) == 0
    assert "PP2, h100-sxm + l40s, bf16, vllm-v1" in capsys.readouterr().out
    assert run(["compare", str(tmp_path / "same"), str(tmp_path / "mixed")]) == 0
    assert "plan stage_devices" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["llama-3.1-8b", "l40s", "--stage-devices", "h100-sxm,l40s"], "the first stage is on h100-sxm"),
        (["llama-3.1-8b", "--stage-devices", "h100-sxm,l4s"], "l40s"),
        (["llama-3.1-8b", "--stage-devices", "h100-sxm,"], "write h100-sxm,l40s or h100-sxm:16,l40s:32"),
        ([*MIXED, "--pp", "3"], "2 stages of 1 device, but the replica has 3"),
        ([*MIXED, "--training"], "--stage-devices: not for a training run"),
        (["llama-3.1-8b"], "DEVICE is missing"),
        ([], "MODEL is missing"),
        (["--like", "vllm serve Qwen/Qwen3-8B"], "DEVICE is missing behind --like"),
    ],
)
def test_what_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert run(["plan", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_search_keeps_to_the_stages_that_were_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "llama-3.1-8b", "h100-sxm", "--stage-devices", "h100-sxm,l40s", "--devices", "2"]
    assert run([*words, *WORK, "--json"]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert [trial["name"] for trial in found["trials"]] == ["pp2"]
