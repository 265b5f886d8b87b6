"""What a machine may lack."""

import os
from collections.abc import Callable

import pytest


@pytest.fixture
def missing() -> Callable[[str], str]:
    """Skips for want of a program; in CI it fails."""

    def give_up(reason: str) -> str:
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)

    return give_up
