"""Commands for clusters in Docker, as far as no Docker daemon is needed."""

from pathlib import Path

import pytest

from stageline.cli.main import invoke as run


def test_following_the_logs_of_all_parts_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", "--follow"]) == 2
    assert "stageline logs stage-03 --follow" in capsys.readouterr().err


def test_a_tokenizer_is_a_file_of_this_machine(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["up", str(root / "tests/data/fewest.plan.json"), "--docker", "--tokenizer", "x.json"]
    assert run(command) == 2
    assert "--tokenizer needs local processes" in capsys.readouterr().err
