"""`stageline plan`, `models`, `devices`: output, files, exit codes, one line per mistake."""

import json
import re
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run
from stageline.plan.parse import parse_plan
from stageline.units import counted

LLAMA = ["plan", "llama-3.1-70b", "h100-sxm"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "kimi-k3", "wse-3t", "--placement", "by-kind", "--layer-bytes", "nominal", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert (out["devices"], out["visits"], out["credits"]) == (59, 70, 59)
    assert len(out["stages"]) == 59


def test_the_plan_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    assert run([*LLAMA, "--devices", "8", "--replicas", "2", "-o", str(path)]) == 0
    assert "8 x 2 replicas = 16 devices" in capsys.readouterr().out
    plan = parse_plan(path.read_bytes(), "plan.json")
    assert (len(plan.stages), plan.replicas) == (8, 2)


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "kimi-k3", "wse-3t", "--placement", "by-kind", "--layer-bytes", "nominal", "--explain"]
    assert run(arguments) == 0
    assert "69/2 -> 35, + 24 = 59" in capsys.readouterr().out
    assert run(["plan", "llama-3.1-70b", "h100-sxm", "--devices", "8", "--explain"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"decode step of [\d,]+ sequences at 8,192 tokens takes [\d,.]+ us on stages? \S+ bound by: mem", shown
    )
    assert re.search(r"prefill chunk of [\d,]+ tokens takes .{1,40} bound by: compute \d\d %, memory", shown)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (["--tensor-parallel-size", "4"], "devices", 4),
        (["--max-model-len", "32K"], "context_tokens", 32768),
        (["--pipeline-parallel-size", "2", "--tp", "2"], "devices", 4),
        (["--devices", "8", "--layer-partition", "vllm", "--kv-cache-dtype", "fp8_e4m3"], "requests", 328),
        (["--devices", "8", "--layer-partition", "vllm", "--kv-cache-dtype", "auto"], "requests", 164),
        (["--data-parallel-size", "3"], "replicas", 3),
        (["--gpu-memory-utilization", "0.5"], "devices", 4),
        (["--weights", "int4"], "devices", 1),
        (["--devices", "8", "--credits", "99"], "credits", 99),
        (["--devices", "8", "--hop-latency", "1ms"], "network_floor_ns", 8_000_000),
        (["--devices", "8", "--network", "10gbe"], "network_floor_ns", 8 * 40_000),
    ],
)
def test_flags(flags: list[str], field: str, value: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LLAMA, *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[field] == value


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["plan"], 2, "MODEL"),
        (["plan", "kimi-k4", "wse-3t"], 2, "kimi-k4"),
        (["plan", "kimi-k3", "wse-4"], 2, "wse-4"),
        (["plan", "no/such/config.json", "wse-3t"], 2, "no/such/config.json"),
        ([*LLAMA, "--placement", "random"], 2, "placement"),
        ([*LLAMA, "--no-such-flag"], 2, "--no-such-flag"),
        ([*LLAMA, "--devices", "x"], 2, "devices"),
        ([*LLAMA, "--devices", "0"], 2, "--devices 0"),
        ([*LLAMA, "--devices", "5", "--pp", "4"], 2, "--devices 5"),
        ([*LLAMA, "--kv-cache-dtype", "fp3"], 2, "kv-cache-dtype"),
        ([*LLAMA, "--context", "0"], 2, "--context 0"),
        ([*LLAMA, "--context", "many"], 2, "--context"),
        ([*LLAMA, "--hop-latency", "2"], 2, "--hop-latency"),
        ([*LLAMA, "--hop-bandwidth", "0GB/s"], 2, "--hop-bandwidth"),
        ([*LLAMA, "--memory-share", "1.5"], 2, "--memory-share"),
        ([*LLAMA, "--memory-share", "nan"], 2, "--memory-share"),
        ([*LLAMA, "--weights", "int3"], 2, "int3"),
        ([*LLAMA, "--catalog", "/nonexistent"], 2, "/nonexistent"),
        ([*LLAMA, "-o", "/nonexistent/plan.json"], 2, "/nonexistent/plan.json"),
        ([*LLAMA, "--devices", "1"], 4, "bytes short"),
        (["models", "show", "nope"], 2, "nope"),
        (["devices", "show", "nope"], 2, "nope"),
    ],
)
def test_mistakes(arguments: list[str], code: int, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert named in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "--json"]) == 0
    assert {"kimi-k3", "llama-3.1-8b"} <= {row["name"] for row in json.loads(capsys.readouterr().out)}
    assert run(["models", "show", "kimi-k3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert round(shown["weight_bytes"] / 1e9, 1) == 1559.9
    assert shown["kv_bytes_per_token"] == 13_824
    assert shown["state_bytes_per_request"] == 69 * 6_512_640
    assert len(shown["layers"]) == 93
    assert {"total_params", "active_params"} <= set(shown)
    assert run(["models"]) == run(["models", "show", "kimi-k3"]) == 0
    assert "kda+moe" in capsys.readouterr().out


def test_a_config_by_path(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(shared_data / "configs/Qwen--Qwen3-8B.json")
    assert run(["models", "show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total_params"] == 8_190_735_360
    assert run(["plan", path, "h100-sxm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == 1


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["devices", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "wse-3t" in {row["name"] for row in found["devices"]}
    assert run(["devices", "show", "wse-3t", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory_bytes"] == 44_000_000_000
    assert run(["devices"]) == run(["devices", "show", "h100-sxm"]) == 0
    assert "[published]" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "ns"), [("0", 0), ("2us", 2_000), ("1min", 60 * 10**9)])
def test_hop_latency(tmp_path: Path, text: str, ns: int) -> None:
    out = tmp_path / "plan.json"
    command = ["plan", "llama-3.1-8b", "h100-sxm", "--devices", "2", "--tp", "1", "--hop-latency", text]
    assert run([*command, "-o", str(out)]) == 0
    assert {link["latency_ns"] for link in json.loads(out.read_text())["links"]} == {ns}


def test_a_serving_command_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM's names, all nine: experts over tensor ranks x data-parallel size, which are then replicas of attention."""
    pasted = "--tensor-parallel-size 1 --data-parallel-size 16 --enable-expert-parallel --max-model-len 4096"
    pasted += " --max-num-seqs 64 --max-num-batched-tokens 8192 --gpu-memory-utilization 0.92 --kv-cache-dtype fp8"
    assert run(["plan", "deepseek-v3", "h200", "--json", *pasted.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["devices"], found["replicas"], found["microbatch"]) == (
        16,
        1,
        1024,
    )  # 64 running on each data-parallel rank
    dense = "--tensor-parallel-size 4 --pipeline-parallel-size 2 --data-parallel-size 3 --max-model-len 8192"
    assert run(["plan", "llama-3.1-70b", "h100-sxm", "--json", *dense.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["devices"], len(found["stages"]), found["replicas"], found["total_devices"]) == (8, 2, 3, 24)
    assert run(["plan", "deepseek-v3", "h200", "--ep", "6", "--tp", "4"]) == 2
    assert "--ep 6" in capsys.readouterr().err
    assert run(["plan", "deepseek-v3", "h200", "--ep", "16", "--cp", "2"]) == 2
    assert "--cp" in capsys.readouterr().err


def test_other_weights_say_how_many_devices_they_save(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "llama-3.1-405b", "h100-sxm", "--json"]) == 0
    shipped = json.loads(capsys.readouterr().out)
    assert "devices_fewer" not in shipped
    assert run(["plan", "llama-3.1-405b", "h100-sxm", "--weights", "int4", "--json"]) == 0
    smaller = json.loads(capsys.readouterr().out)
    assert smaller["devices_fewer"] == shipped["devices"] - smaller["devices"] > 0
    assert run(["plan", "llama-3.1-405b", "h100-sxm", "--weights", "int4"]) == 0
    assert f"{counted(smaller['devices_fewer'], 'device')} fewer" in capsys.readouterr().out
    assert run(["plan", "llama-3.1-405b", "h100-sxm", "--weights", "int4", "--devices", "16", "--json"]) == 0
    assert "devices_fewer" not in json.loads(capsys.readouterr().out)
