"""What all tests share."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public traces and measurements that are not part of the project. Absent: skipped, but a failure under CI."""
    path = Path(os.environ.get("STAGELINE_SHARED_DATA") or ROOT.parent / "shared" / "data")
    if path.is_dir():
        return path
    if os.environ.get("CI") == "true":
        pytest.fail(f"no data at {path}: set STAGELINE_SHARED_DATA")
    pytest.skip(f"no data at {path}: set STAGELINE_SHARED_DATA")
