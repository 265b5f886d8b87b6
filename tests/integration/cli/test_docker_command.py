"""`stageline logs` and its like, as far as no engine is needed."""

import pytest

from stageline.cli.main import run


def test_following_the_logs_of_all_parts_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", "--follow"]) == 2
    assert "stageline logs stage-03 --follow" in capsys.readouterr().err
