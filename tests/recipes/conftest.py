"""The scratch copy."""

from pathlib import Path

import pytest

from tests.recipes.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """A copy of the tree."""
    return Scratch(tmp_path)
