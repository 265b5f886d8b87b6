"""Plan files that can't be read are named."""

from pathlib import Path

import pytest

from stageline.errors import BadInput
from stageline.runtime.plans import read_plan_file


@pytest.mark.parametrize(("name", "reason"), [("/dev/zero", "is a device"), ("missing.json", "can't be read: No such")])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        read_plan_file(tmp_path / name)
