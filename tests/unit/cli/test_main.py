"""The registry of commands."""

import re

import pytest

from stageline.cli.main import run


def test_every_command_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    commands = dict(re.findall(r"^│ ([a-z]+) (.*)│$", capsys.readouterr().out, re.MULTILINE))
    assert {"plan", "run", "up", "cluster", "down", "logs", "ps", "stats"} <= commands.keys()
    assert [name for name, says in commands.items() if not says.strip()] == []
