"""The bundled sample trace is up to date with its script, and can be replayed."""

import runpy
from pathlib import Path

import pytest

from stageline.workload import open_workload
from tests.draining import drain


def test_the_sample_is_fresh(root: Path, tmp_path: Path) -> None:
    kept = (root / "examples/traces/sample_azure.csv").read_text()
    main = runpy.run_path(str(root / "scripts/sample-trace"))["main"]
    main.__globals__["ROOT"] = tmp_path
    main()
    assert (tmp_path / "examples/traces/sample_azure.csv").read_text() == kept


def test_the_sample_can_be_replayed(root: Path) -> None:
    workload = open_workload(str(root / "examples/traces/sample_azure.csv"))
    tokens = sum(request.output_tokens for request in drain(workload))
    assert (workload.counts.read, workload.counts.accepted) == (300, 300)
    assert tokens / 300 == pytest.approx(100, rel=0.2)
