"""The registry of commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stageline.cli.main import invoke as run

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
COMMAND = [sys.executable, "-c", "from stageline.cli.main import main; main()"]


def test_every_command_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    commands = dict(re.findall(r"^│ ([a-z]+) (.*)│$", capsys.readouterr().out, re.MULTILINE))
    assert {"plan", "run", "up", "cluster", "down", "logs", "ps", "stats"} <= commands.keys()
    assert [name for name, says in commands.items() if not says.strip()] == []


@pytest.mark.parametrize("words", [["devices"], ["plan", "llama-3.1-70b", "h100-sxm"], ["models", "--json"]])
def test_a_reader_that_has_seen_enough_is_no_failure(words: list[str]) -> None:
    """The pipe is closed before anything is written; tables and JSON alike."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_module_can_be_run() -> None:
    command = [sys.executable, "-m", "stageline.cli.main", "--version"]
    assert subprocess.run(command, stdout=subprocess.PIPE, env=ENVIRONMENT, check=True).stdout.strip()


def test_a_stdout_that_is_closed_is_no_failure() -> None:
    words = [*COMMAND, "devices"]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("words", [["devices"], ["models", "--json"]])
def test_a_full_disk_is_named(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("stageline: the output can't be written: No space left on device")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "llama-3.1-8b", "h100-sxm", "--hop-latency", "-1us"], "is written --hop-latency=-1us"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--pp", "2.7"], "--pp: not a whole number (got '2.7')"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--devices", "9" * 60], "--devices: too large"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--devices", "9" * 20], "--devices 999"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--memory-share", "most"], "--memory-share: not a number"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--context", "9" * 20], "--context: too large"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--training", "--batch", "0"], "--batch 0: must be 1 or more"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--training", "--replicas", "0"], "--replicas 0"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--training", "--tokens", "-1"], "--tokens -1: must lie"),
        (["plan", "llama-3.1-8b", "h100-sxm", "--training", "--price", "nan"], "--price: not a finite number"),
        (["run", "plan.json"], "--workload is missing; stageline run --help"),
        (["plan", "llama-3.1-8b"], "DEVICE is missing; stageline plan --help"),
    ],
)
def test_mistakes_name_the_flag_as_it_is_written(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert says in capsys.readouterr().err
