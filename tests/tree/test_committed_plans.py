"""Plans in the repository are what the planner makes today."""

from pathlib import Path

import pytest

from stageline.cli.main import invoke as run

PLANS = {
    "deploy/compose/llama-3.1-70b.json": "plan llama-3.1-70b h100-sxm --devices 8 --serving-engine pipeline",
    "deploy/compose/kimi-k3.json": "plan kimi-k3 wse-3t --placement by-kind --layer-bytes nominal "
    "--serving-engine pipeline",
}


@pytest.mark.parametrize("path", PLANS)
def test_a_committed_plan_is_fresh(path: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "plan.json"
    assert run([*PLANS[path].split(), "-o", str(made)]) == 0, capsys.readouterr().err
    assert (root / path).read_text() == made.read_text(), f"make it again: stageline {PLANS[path]} -o {path}"
