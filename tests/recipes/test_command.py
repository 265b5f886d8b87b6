"""The recipes for a command and for a fault: what they add to the command line."""

from tests.recipes.scratch import Scratch, named

MODULE = '''\
"""`stageline greet`: for this test."""

from typing import Annotated

from cyclopts import Parameter

from stageline.errors import UsageError


def greet_command(name: str, /, *, loud: Annotated[bool, Parameter(help="In capitals.")] = False) -> int:
    """Greet somebody."""
    if not name.isalpha():
        raise UsageError(f"{name}: no name")
    print(name.upper() if loud else name)
    return 0
'''
TEST = '''\
"""`stageline greet` as users meet it."""

import pytest

from stageline.cli.main import invoke as run


def test_it_greets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["greet", "Ada", "--loud"]) == 0
    assert capsys.readouterr().out == "ADA\\n"


def test_what_is_no_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["greet", "4"]) == 2
    assert "4: no name" in capsys.readouterr().err
'''
WORDS = """\
    "slow": "slowed",
    "hasten": "hastened",
"""
PAIR = '''\
@cluster_app.command
def slow(stage: PartName, *, name: Which = "") -> None:
    """Give a container little of a CPU."""
    _act(name, stage, "slow")


@cluster_app.command
def hasten(stage: PartName, *, name: Which = "") -> None:
    """Give a slowed container its CPU back."""
    _act(name, stage, "hasten")


'''
ACTIONS = """\
    "slow": lambda _, container: container.update(cpu_quota=1000),
    "hasten": lambda _, container: container.update(cpu_quota=-1),
"""
ONLY_CONTAINERS = '"connect", "disconnect"'


def test_a_command(scratch: Scratch) -> None:
    module, registry, page = "stageline/cli/greet.py", "stageline/cli/main.py", "docs/cli.md"
    test = "tests/integration/cli/test_greet_command.py"
    scratch.add(module, MODULE)
    scratch.add(test, TEST)
    scratch.insert(
        registry, "from stageline.cli.load import load_command\n", "from stageline.cli.greet import greet_command\n"
    )
    scratch.insert(
        registry, 'app.command(report_command, name="report")\n', 'app.command(greet_command, name="greet")\n'
    )
    scratch.run("scripts/reference-pages")
    assert scratch.changed() == {module, registry, test, page} <= named("A command", NAME="greet")
    scratch.check(test, "tests/integration/cli/test_main.py::test_every_command_says_what_it_does",
                  "tests/tree/test_reference_pages.py")  # fmt: skip


def test_a_fault(scratch: Scratch) -> None:
    """The case is collected; it runs only where there is a Docker daemon."""
    commands, test, page = "stageline/cli/cluster.py", "tests/containers/test_docker.py", "docs/cli.md"
    words, docker = "stageline/cluster/parts.py", "stageline/cluster/docker_running.py"
    local = "stageline/cluster/control.py"
    scratch.insert(words, '    "restart": "restarted",\n', WORDS)
    scratch.insert(docker, '    "connect": lambda', ACTIONS)
    scratch.insert(local, ONLY_CONTAINERS, '"slow", "hasten", ')
    scratch.insert(commands, "@cluster_app.command\ndef restart(", PAIR)
    scratch.insert(test, '("disconnect", "connect")]', '("slow", "hasten"), ')
    scratch.run("scripts/reference-pages")
    assert scratch.changed() == {commands, words, docker, local, test, page} <= named("A fault")
    assert "### stageline cluster hasten" in (scratch.root / page).read_text()
    found = scratch.pytest("--collect-only", test)
    assert "test_a_broken_part_is_mended_and_the_next_run_is_good[slow-hasten]" in found
