"""`stageline plan --like 'vllm serve ...'`: the plan of a launch line."""

import json
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run

LINE = "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --max-num-seqs 64 --gpu-memory-utilization 0.8 --port 1"


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["plan", *words, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    del found["digest"]  # the plan says by which command it was made
    return found


def test_a_launch_line_plans_what_its_flags_plan(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--tp", "2", "--max-num-seqs", "64", "--gpu-memory-utilization", "0.8")
    assert planned(capsys, "--like", LINE, "h100-sxm") == planned(capsys, "llama-3.1-8b", "h100-sxm", *flags)
    assert run(["plan", "--like", LINE, "h100-sxm"]) == 0
    assert "--like: these change nothing that is emulated: --port" in capsys.readouterr().err


def test_flags_beside_the_line_go_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(capsys, "--like", LINE, "h100-sxm", "--tp", "4")["total_devices"] == 4


def test_a_model_beside_the_line_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--like", LINE, "llama-3.1-8b", "h100-sxm"]) == 2
    assert "--like names the model: give only the device" in capsys.readouterr().err
    assert run(["plan", "--like", LINE.replace("-tp", "-tpp"), "h100-sxm"]) == 2
    assert "--like -tpp: not a flag" in capsys.readouterr().err


VALUES = """# comments, anchors and plain words, as people write them
servingEngineSpec:
  runtimeClassName: ""
  modelSpec:
    - name: llama
      modelURL: meta-llama/Llama-3.1-8B-Instruct
      replicaCount: 2
      requestGPU: 2
      vllmConfig:
        tensorParallelSize: 2
        enablePrefixCaching: no
        maxModelLen: 16384
        extraArgs: ["--max-num-seqs", "64", --gpu-memory-utilization, 0.8]
"""


def test_a_values_file_plans_what_its_flags_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The chart of vLLM's production stack: two pods of two devices."""
    path = tmp_path / "values.yaml"
    path.write_text(VALUES)
    flags = ("--tp", "2", "--data-parallel-size", "2", "--max-num-seqs", "64", "--gpu-memory-utilization", "0.8")
    flags += ("--max-model-len", "16384", "--no-enable-prefix-caching")
    assert planned(capsys, "--like", str(path), "h100-sxm") == planned(capsys, "llama-3.1-8b", "h100-sxm", *flags)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "no YAML"),
        ("a: !!python/object/apply:os.getcwd []", "no YAML"),
        ("x: 1", "no values of the production stack"),
        ("just words", "no values of the production stack"),
        ("", "no values of the production stack"),
        (VALUES.replace("maxModelLen", "maxModelLength"), "maxModelLength"),
        (VALUES.replace("vllmConfig:", "vllmConfig: 3\n      other:"), "no values of the production stack"),
        ("servingEngineSpec: {modelSpec: []}", "no values of the production stack"),
    ],
)
def test_a_values_file_that_is_none_is_named(
    text: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(text)
    assert run(["plan", "--like", str(path), "h100-sxm"]) == 2
    error = capsys.readouterr().err
    assert says in error and "values.yaml" in error
