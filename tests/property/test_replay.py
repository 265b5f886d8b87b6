"""A failing property prints one command, and that command fails the same way; nothing else does."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from stageline.engine.microbatch import Item, Trail
from stageline.engine.stage import Stage
from tests.property import replay, soak
from tests.property.checks import CHECKS, command, numbers, run_case
from tests.property.differences import difference


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seventh microbatch of a stage takes one nanosecond more."""
    occupy = Stage.occupy

    def late(self: Stage, visit: int, item: Item, service_ns: int) -> Trail:
        return occupy(self, visit, item, service_ns + (item.microbatch.number % 7 == 3))

    monkeypatch.setattr(Stage, "occupy", late)


def by_number() -> None:
    for number in range(1000):
        run_case("reference", "plain", number)


@settings(max_examples=300, database=None)
@given(numbers)
def by_hypothesis(number: int) -> None:
    run_case("reference", "sharing", number)


@pytest.mark.parametrize("run", [by_number, by_hypothesis])
def test_the_printed_command_fails_again(
    run: Callable[[], None], broken: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError, match=r"got .*, wanted ") as caught:
        run()
    (note,) = [note for note in caught.value.__notes__ if note.startswith("replay: ")]
    words = shlex.split(note)
    assert words[1:4] == [".venv/bin/python", "-m", replay.__name__]
    assert replay.main(words[4:]) == 1
    said = capsys.readouterr().out
    assert str(caught.value) in said
    monkeypatch.undo()
    assert replay.main(words[4:]) == 0
    assert capsys.readouterr().out == " ".join(words[4:]) + " holds\n"


@pytest.mark.parametrize(
    "words", [[], ["reference"], ["reference", "plain", "x"], ["reference", "leaving", "1"], ["none", "plain", "1"]]
)
def test_a_case_that_there_is_not_lists_those_that_there_are(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay.main(words) == 2
    said = capsys.readouterr().out
    assert [name for name in CHECKS if name not in said] == []


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"cluster"}))
def test_every_check_runs_on_each_of_its_kinds(check: str) -> None:
    for kind in CHECKS[check].kinds:
        if (check, kind) != ("answers", "search"):  # a grid takes a minute: test_answers.py has one
            run_case(check, kind, 7)


def test_a_soak_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--count", "3", "--seed", "50", "--kind", "plain", "--kind", "windows"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("reference: 6 of 6 scenarios hold (plain, windows; from number 50; ")


def test_a_soak_that_fails_says_how_to_replay_it(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--count", "20", "--kind", "plain"]) == 1
    summary, first, replayed = capsys.readouterr().out.splitlines()
    assert "of 20 scenarios hold" in summary
    assert "wanted" in first
    words = replayed.removeprefix("replay: ").split()
    assert replayed.removeprefix("replay: ") == command("reference", "plain", int(words[-1]))
    assert replay.main(words[3:]) == 1


@pytest.mark.parametrize("words", [["--kind", "leaving"], ["--check", "index", "--kind", "plain"]])
def test_a_soak_refuses_kinds_that_a_check_does_not_take(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(words)


@pytest.mark.parametrize(
    ("got", "wanted", "says"),
    [
        ([1, 2], [1, 3], "[1]: got 2, wanted 3"),
        ([1], [1, 3], ": 1 of them, wanted 2"),
        ({"a": [0]}, {"a": [1]}, "['a'][0]: got 0, wanted 1"),
        ({"a": 0}, {}, "['a']: only got"),
        ((1, "x"), (1, "y"), "[1]: got 'x', wanted 'y'"),
    ],
)
def test_differences_are_named(got: object, wanted: object, says: str) -> None:
    assert difference(got, wanted) == says


PROPERTY = """
from hypothesis import given, settings, strategies as st

@settings(database=None)
@given(st.integers(0, 10**9))
def test_a_property(number):
    assert number < 10**8, number
"""


@pytest.mark.parametrize("ci", ["", "true"])
def test_any_property_prints_the_command_that_replays_it(root: Path, tmp_path: Path, ci: str) -> None:
    """Those that draw no scenarios, too: by a seed, and in CI, where draws are fixed, as it is."""
    (tmp_path / "test_some.py").write_text(PROPERTY)
    shutil.copy(root / "tests/conftest.py", tmp_path / "conftest.py")
    pytest_ = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | ({"CI": ci} if ci else {})

    def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
        words = [*pytest_, *arguments]
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    first = run(["test_some.py"])
    (line,) = [line for line in first.stdout.splitlines() if ".venv/bin/pytest -n 0" in line]
    assert line.startswith("CI=true ") == bool(ci)
    again = run(shlex.split(line.removeprefix("CI=true "))[1:])
    for done in (first, again):
        assert done.returncode == 1
        assert "AssertionError: 100000000" in done.stdout
